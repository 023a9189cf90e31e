"""Single questions to a target, outside of any load: which model it serves, and the vectors of some texts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from shoal.bench.connection import Connections, Reply, message
from shoal.bench.targets import KINDS, Target, Vectors
from shoal.errors import InternalError, InvalidRequest, NotReady

__all__ = ["Answers", "check", "embed_all", "with_model"]

_NAMELESS = ("tei", "tei-rerank")
"""A server of these APIs serves one model and is not told which."""


class Answers(msgspec.Struct, frozen=True):
    """The vectors of texts, and the tokens that the server counted; 0 if it does not count."""

    vectors: Vectors
    num_tokens: int


def with_model(target: Target) -> Target:
    """The same target with a model: the only one that it lists, if none was named.

    Raises:
        InvalidRequest: it lists several.
        NotReady: it does not answer.
    """
    if target.model or target.kind in _NAMELESS or target.address.path.endswith("/embeddings"):
        return target
    address = target.address
    path = address.path + "/models" if address.path and target.kind not in ("shoal", "shoal-json") else "/v1/models"
    headers = {"authorization": f"Bearer {target.api_key}"} if target.api_key else {}
    [reply] = _ask(target, [message(address, "GET", path, headers, b"")], 1)
    try:
        names = [str(entry["id"]) for entry in msgspec.json.decode(reply.body)["data"]]
    except (msgspec.MsgspecError, KeyError, TypeError):
        names = []
    if len(names) != 1:
        listed = f"lists {', '.join(names[:8])}" if names else "does not list its models"
        raise InvalidRequest(f"{target.name} {listed}.", hint=f"Name one: {target.url}#MODEL, or --model.")
    return msgspec.structs.replace(target, model=names[0])


def check(target: Target, texts: Sequence[str]) -> None:
    """Send one request and look at the reply, so that no error is ever measured for its speed.

    Raises:
        ShoalError: no reply, or not what it should be.
    """
    [reply] = _ask(target, [target.request(texts)], 1)
    target.read(reply, len(texts))


def embed_all(
    target: Target,
    texts: Sequence[str],
    batch_items: int,
    concurrency: int,
    on_reply: Callable[[int], None] = lambda num_texts: None,
) -> Answers:
    """Vectors of all texts, in order.

    Args:
        on_reply: told how many texts each reply was about.

    Raises:
        ShoalError: no reply, or not what it should be.
    """
    batches = [texts[start : start + batch_items] for start in range(0, len(texts), batch_items)]
    sizes = iter(batches)
    replies = _ask(
        target, [target.request(batch) for batch in batches], concurrency, lambda: on_reply(len(next(sizes)))
    )
    rows = [target.read(reply, len(batch)) for reply, batch in zip(replies, batches, strict=True)]
    num_tokens = sum(KINDS[target.kind].tokens(reply) for reply in replies)
    return Answers(np.concatenate(rows), num_tokens)


def _ask(
    target: Target, messages: Sequence[bytes], concurrency: int, on_reply: Callable[[], None] = lambda: None
) -> list[Reply]:
    async def ask(connections: Connections, request: bytes) -> Reply:
        reply = await connections.ask(request, 120.0)
        on_reply()
        return reply

    async def ask_all() -> list[Reply]:
        connections = Connections(target.address, concurrency)
        try:
            return await asyncio.gather(*(ask(connections, request) for request in messages))
        finally:
            connections.close()

    try:
        return asyncio.run(ask_all())
    except TimeoutError as error:
        raise NotReady(f"{target.url} did not answer within 120 s.") from error
    except OSError as error:
        raise NotReady(f"Nobody answers at {target.url}: {error or type(error).__name__}.") from error
    except ValueError as error:
        raise InternalError(f"{target.url} does not answer as HTTP should: {error}") from error
