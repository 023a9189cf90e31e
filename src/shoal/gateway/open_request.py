"""A request that is not answered yet: its chunks, which of them are on their way, and the replies so far. No policy."""

from __future__ import annotations

import asyncio

from shoal.errors import ShoalError
from shoal.gateway.chunks import Chunks
from shoal.gateway.http import ClientGone, Receive
from shoal.gateway.turns import Part
from shoal.types import ChunkReply

__all__ = ["HERE", "OpenRequest"]

HERE = -1
"""In the place of a lane's rank: not published."""


class OpenRequest:
    """What is kept until the client has its answer.

    Attributes:
        tenant: who asks.
        rank: of the lane that it asks for.
        costs: estimated tokens of each chunk.
        ranks: of the lane that each chunk was published to, or `HERE`.
        part: its chunks that wait for their turn.
        missing: chunks without a reply.
        deadline: on the event loop's clock, as `opened_at`.
    """

    __slots__ = (
        "chunks",
        "costs",
        "deadline",
        "done",
        "missing",
        "model",
        "opened_at",
        "part",
        "rank",
        "ranks",
        "receive",
        "replies",
        "tenant",
        "watcher",
    )

    def __init__(
        self,
        model: str,
        tenant: str,
        rank: int,
        chunks: Chunks,
        done: asyncio.Future[None],
        opened_at: float,
        timeout_s: float,
        receive: Receive,
    ) -> None:
        self.model = model
        self.tenant = tenant
        self.rank = rank
        self.chunks = chunks
        self.costs = chunks.costs
        self.ranks = [HERE] * len(chunks.costs)
        self.part: Part[OpenRequest] | None = None
        self.replies: list[ChunkReply | None] = [None] * len(chunks.costs)
        self.missing = len(chunks.costs)
        self.done = done
        self.opened_at = opened_at
        self.deadline = opened_at + timeout_s
        self.receive = receive
        self.watcher: asyncio.Task[None] | None = None

    @property
    def on_their_way(self) -> list[int]:
        """Chunks published and not answered."""
        return [
            index
            for index, (rank, reply) in enumerate(zip(self.ranks, self.replies, strict=True))
            if rank != HERE and reply is None
        ]

    def expects(self, reply: ChunkReply) -> bool:
        """Whether it is the first reply to a chunk that is on its way."""
        index = reply.index
        return 0 <= index < len(self.ranks) and self.ranks[index] != HERE and self.replies[index] is None

    def accept(self, reply: ChunkReply) -> None:
        """Take in the reply to a chunk."""
        self.replies[reply.index] = reply
        self.missing -= 1
        if reply.error is not None:
            self.fail(ShoalError.from_body(reply.error))
        elif self.missing == 0 and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        """End the request with an error, unless it has ended."""
        if not self.done.done():
            self.done.set_exception(error)

    async def watch(self) -> None:
        """End the request when its client hangs up."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.fail(ClientGone())

    def close(self) -> None:
        """Nobody waits any more."""
        if self.watcher is not None:
            self.watcher.cancel()
        if self.done.done() and not self.done.cancelled():
            self.done.exception()  # whoever raised first has told it already
        else:
            self.done.cancel()
