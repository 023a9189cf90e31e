"""Dead letters in JetStream: a stream of its own for each pool, in files, so that it outlives a broker that keeps them.

It must not know what the letters say.
"""

from __future__ import annotations

from typing import Any

from shoal.errors import NotReady
from shoal.queue.api import NOT_FOUND, Api, ApiError
from shoal.queue.dead import MAX_AGE_S, MAX_BYTES, MAX_LETTERS, Buried
from shoal.queue.names import dead_stream_name, dead_subject

__all__ = ["DeadStream"]


class DeadStream:
    """The dead letters of all pools.

    Raises:
        NotReady: each of its methods, if the broker does not answer or refuses.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    async def put(self, pool: str, body: bytes) -> None:
        """Add one; the oldest may have to go for it."""
        await self._call(f"STREAM.CREATE.{dead_stream_name(pool)}", _configuration(pool))
        answer = await self._api.ask(dead_subject(pool), body)
        if not answer.data.startswith(b'{"stream"'):
            raise NotReady(f"The broker took no dead letter: {answer.data.decode(errors='replace')[:200]}")

    async def all(self, pool: str) -> list[Buried]:
        """Oldest first."""
        letters: list[Buried] = []
        path = f"$JS.API.DIRECT.GET.{dead_stream_name(pool)}"
        while True:
            next_number = letters[-1].number + 1 if letters else 1
            answer = await self._api.ask(path, b'{"seq":%d,"next_by_subj":">"}' % next_number)
            headers = answer.headers or {}
            if "Status" in headers:  # no more, or no stream
                return letters
            letters.append(Buried(int(headers["Nats-Sequence"]), answer.data))

    async def remove(self, pool: str, number: int | None) -> int:
        """Remove one, or all; returns how many."""
        name = dead_stream_name(pool)
        if number is None:
            purged = await self._call(f"STREAM.PURGE.{name}", None)
            return int(purged["purged"]) if purged else 0
        return int(await self._call(f"STREAM.MSG.DELETE.{name}", {"seq": number}) is not None)

    async def _call(self, path: str, request: object) -> dict[str, Any] | None:
        """A request to JetStream's API; None if what the path names is not there."""
        try:
            return await self._api.call_patiently(path, request)
        except ApiError as error:
            if error.code in NOT_FOUND:
                return None
            raise NotReady(f"The broker refuses {path}: {error}.") from None


def _configuration(pool: str) -> dict[str, object]:
    return {
        "name": dead_stream_name(pool),
        "subjects": [dead_subject(pool)],
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_msgs": MAX_LETTERS,
        "max_bytes": MAX_BYTES,
        "max_age": int(MAX_AGE_S * 1e9),
        "allow_direct": True,
        "num_replicas": 1,
    }
