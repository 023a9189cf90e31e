"""Single questions to a target, outside of any load: which model it serves, and the vectors of some texts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import numpy as np

from shoal.bench.connection import Connections, Reply, message
from shoal.bench.targets import KINDS, Role, Target, Vectors
from shoal.errors import InternalError, InvalidRequest, NotReady

__all__ = ["Answers", "check", "embed_all", "with_model"]

_LIMIT_S = 300.0

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
        Unauthorized: it does not take the key, or wants one.
        NotReady: it does not answer.
    """
    if target.model or target.kind in _NAMELESS or target.address.path.endswith("/embeddings"):
        return target
    address = target.address
    path = address.path + "/models" if address.path and target.kind not in ("shoal", "shoal-json") else "/v1/models"
    headers = {"authorization": f"Bearer {target.api_key}"} if target.api_key else {}
    [reply] = _ask(target, [message(address, "GET", path, headers, b"")], 1)
    if reply.status in (401, 403):
        target.check_status(reply)
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
    role: Role = "",
) -> Answers:
    """Vectors of all texts, in order.

    Raises:
        ShoalError: no reply, or not what it should be.
    """
    batches = [texts[start : start + batch_items] for start in range(0, len(texts), batch_items)]
    replies = _ask(target, [target.request(batch, role) for batch in batches], concurrency)
    rows = [target.read(reply, len(batch)) for reply, batch in zip(replies, batches, strict=True)]
    num_tokens = sum(KINDS[target.kind].tokens(reply) for reply in replies)
    return Answers(np.concatenate(rows), num_tokens)


def _ask(target: Target, messages: Sequence[bytes], concurrency: int) -> list[Reply]:
    replies: dict[int, Reply] = {}
    numbered = iter(enumerate(messages))

    async def ask_in_turn(connections: Connections) -> None:
        for number, request in numbered:
            replies[number] = await connections.ask(request, _LIMIT_S)

    async def ask_all() -> list[Reply]:
        connections = Connections(target.address, concurrency)
        try:
            await asyncio.gather(*(ask_in_turn(connections) for _ in range(concurrency)))
        finally:
            connections.close()
        return [replies[number] for number in range(len(messages))]

    try:
        return asyncio.run(ask_all())
    except TimeoutError as error:
        raise NotReady(f"{target.url} did not answer within {_LIMIT_S:g} s.") from error
    except OSError as error:
        raise NotReady(f"Nobody answers at {target.url}: {error or type(error).__name__}.") from error
    except ValueError as error:
        raise InternalError(f"{target.url} does not answer as HTTP should: {error}") from error
