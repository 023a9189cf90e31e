"""Dead letters in JetStream: a stream of its own for each pool, in files, so that it outlives a broker that keeps them.

It must not know what the letters say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nats.aio.msg import Msg

from shoal.errors import NotReady
from shoal.queue.dead import MAX_AGE_S, MAX_BYTES, MAX_LETTERS, Buried
from shoal.queue.names import dead_stream_name, dead_subject

__all__ = ["DeadStream"]


class DeadStream:
    """The dead letters of all pools.

    Args:
        api: a request to JetStream's API, by path; None where what it names is not there.
        ask: a request to a subject, for the raw answer.
    """

    def __init__(
        self,
        api: Callable[[str, object], Awaitable[dict[str, Any] | None]],
        ask: Callable[[str, bytes], Awaitable[Msg]],
    ) -> None:
        self._api = api
        self._ask = ask

    async def put(self, pool: str, body: bytes) -> None:
        """Add one; the oldest may have to go for it.

        Raises:
            NotReady: the broker does not take it.
        """
        await self._api(f"STREAM.CREATE.{dead_stream_name(pool)}", _configuration(pool))
        answer = await self._ask(dead_subject(pool), body)
        if not answer.data.startswith(b'{"stream"'):
            raise NotReady(f"The broker took no dead letter: {answer.data.decode(errors='replace')[:200]}")

    async def all(self, pool: str) -> list[Buried]:
        """Oldest first."""
        letters: list[Buried] = []
        path = f"$JS.API.DIRECT.GET.{dead_stream_name(pool)}"
        while True:
            next_number = letters[-1].number + 1 if letters else 1
            answer = await self._ask(path, b'{"seq":%d,"next_by_subj":">"}' % next_number)
            headers = answer.headers or {}
            if "Status" in headers:  # no more, or no stream
                return letters
            letters.append(Buried(int(headers["Nats-Sequence"]), answer.data))

    async def remove(self, pool: str, number: int | None) -> int:
        """Remove one, or all; returns how many."""
        name = dead_stream_name(pool)
        if number is None:
            purged = await self._api(f"STREAM.PURGE.{name}", None)
            return int(purged["purged"]) if purged else 0
        return int(await self._api(f"STREAM.MSG.DELETE.{name}", {"seq": number}) is not None)


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
