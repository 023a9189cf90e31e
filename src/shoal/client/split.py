"""Cuts a long list of items into requests. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from shoal.errors import InvalidRequest

__all__ = ["Item", "items_of", "size_bytes", "split"]

T = TypeVar("T")

Item = str | Sequence[int]
"""A text, or the token ids of one."""

_BYTES_PER_TOKEN_ID = 5


def items_of(texts: str | Iterable[Item], field: str = "input") -> list[Item]:
    """The items that a caller means; a lone string is one item.

    Args:
        field: what errors call them.

    Raises:
        InvalidRequest: there is none, or one is neither a text nor a list of token ids; `param` names it.
    """
    items: list[Item] = [texts] if isinstance(texts, str) else list(texts)
    if not items:
        raise InvalidRequest("There is no text: the list is empty.", param=field)
    for place, item in enumerate(items):
        if not isinstance(item, (str, Sequence)) or isinstance(item, (bytes, bytearray)):
            raise InvalidRequest(
                f"{field}[{place}] is a {type(item).__name__}; it must be a text or a list of token ids.",
                param=f"{field}[{place}]",
            )
    return items


def split(items: Iterable[T], max_items: int, max_bytes: int, size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Runs of items, in order: at most `max_items` and `max_bytes` each, but an item too long for that goes alone."""
    run: list[T] = []
    num_bytes = 0
    for item in items:
        size = size_of(item)
        if run and (len(run) == max_items or num_bytes + size > max_bytes):
            yield run
            run, num_bytes = [], 0
        run.append(item)
        num_bytes += size
    if run:
        yield run


def size_bytes(item: Item) -> int:
    """Bytes that an item takes in a request, about."""
    if not isinstance(item, str):
        return len(item) * _BYTES_PER_TOKEN_ID
    # isascii is a flag of the string: most texts are measured without being encoded.
    return len(item) if item.isascii() else len(item.encode("utf-8", "surrogatepass"))
