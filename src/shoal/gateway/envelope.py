"""Opens the envelope of a request: its fields, in JSON and in MessagePack, with `input` left as bytes.

It must not know models or surfaces.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable
from types import UnionType
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

import msgspec

from shoal.errors import InvalidRequest
from shoal.gateway.formats import Format
from shoal.gateway.items import find_lone_surrogate

__all__ = ["Envelope"]

T = TypeVar("T")

_NAMES: dict[Format, str] = {"json": "valid JSON", "msgpack": "valid MessagePack"}


class Envelope(Generic[T]):
    """Decodes bodies into one struct, and turns msgspec's complaints into errors that name field and value.

    Args:
        field: the field that holds the items.
    """

    def __init__(self, struct: type[T], field: str = "input") -> None:
        self._field = field
        self._decoders: dict[Format, Callable[[bytes], T]] = {
            "json": msgspec.json.Decoder(struct).decode,
            "msgpack": msgspec.msgpack.Decoder(struct).decode,
        }
        self._allowed = {name: _literals(kind) for name, kind in typing.get_type_hints(struct).items()}

    def open(self, body: bytes, body_format: Format) -> T:
        """The struct in `body`.

        Raises:
            InvalidRequest: not this format, not an object, or a field of the wrong kind; `param` names the field.
        """
        try:
            return self._decoders[body_format](body)
        except msgspec.ValidationError as error:
            raise self._explain(str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _explain_bytes(body, body_format, self._field, str(error)) from None
        except RecursionError:
            raise InvalidRequest("The body is nested too deeply.") from None

    def _explain(self, message: str) -> InvalidRequest:
        what, _, path = message.partition(" - at `$")
        name = re.split(r"[.\[`]", path.lstrip("."), maxsplit=1)[0]
        if not name:
            return InvalidRequest(f"The body must be an object that holds the fields of a request: {what[:200]}.")
        allowed = self._allowed.get(name)
        hint = f"Allowed: {', '.join(allowed)}." if allowed else None
        return InvalidRequest(f"{name}: {what[:200]}.", param=name, hint=hint)


def _explain_bytes(body: bytes, body_format: Format, field: str, message: str) -> InvalidRequest:
    if not body:
        return InvalidRequest("The body is empty.", hint=f"Send an object with at least model and {field}.")
    if body_format == "json" and (index := find_lone_surrogate(body, field)) is not None:
        param = f"{field}[{index}]"
        return InvalidRequest(f"{param} holds half of a surrogate pair, which stands for no character.", param=param)
    return InvalidRequest(f"The body is not {_NAMES[body_format]}: {message[:200]}.")


def _literals(kind: Any) -> list[str]:
    """The words that an annotation such as `Annotated[Literal["a", "b"] | None, ...]` allows."""
    if get_origin(kind) is Literal:
        return [str(word) for word in get_args(kind)]
    if get_origin(kind) in (typing.Union, UnionType):
        return [word for part in get_args(kind) for word in _literals(part)]
    return []
