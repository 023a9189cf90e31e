"""Work that is given up for good: its caller gets an error, the operator a dead letter; a repeat is refused at once.

A letter tells of the chunk without saying what was in it: its envelope, and the SHA-256 of its items as they were sent.
The chunk itself is kept only if the operator said so.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from shoal.adapters.base import Prepared
from shoal.errors import InternalError, ShoalError
from shoal.queue.base import Lease, Queue
from shoal.types import DeadLetter, encode
from shoal.worker.measures import Measures
from shoal.worker.replies import Replies
from shoal.worker.work import Batch, Work, WorkItem

__all__ = ["DeadLetters", "Poison"]

logger = logging.getLogger(__name__)

Reason = Literal["crashed", "undelivered"]

MAX_CRASHES = 3
"""In company, then alone, then alone once more: one who kills the host twice must not cost an innocent request."""

REMEMBERED_S = 600.0
MAX_REMEMBERED = 1_000


class Poison:
    """How often the runtime host died over an input, by digest, for ten minutes after the last time.

    The count outlives the request: callers try again.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._deaths: OrderedDict[bytes, tuple[int, float]] = OrderedDict()

    def add(self, model_id: str, batch: Iterable[Prepared]) -> None:
        """The host died over a batch: once over each input, however often the batch held it.

        Of too many inputs the oldest are forgotten.
        """
        for digest in {_digest(model_id, prepared): None for prepared in batch}:
            number = self._deaths.pop(digest, (0, 0.0))[0] + 1
            self._deaths[digest] = (number, self._clock() + REMEMBERED_S)
            if len(self._deaths) > MAX_REMEMBERED:
                self._deaths.popitem(last=False)

    def count(self, model_id: str, prepared: Prepared) -> int:
        """How often the host died over it; costs nothing as long as it did over none."""
        while self._deaths and next(iter(self._deaths.values()))[1] <= self._clock():
            self._deaths.popitem(last=False)
        return self._deaths.get(_digest(model_id, prepared), (0, 0.0))[0] if self._deaths else 0

    def forget(self, model_id: str, prepared: Prepared) -> None:
        """It ran well: it was in bad company."""
        self._deaths.pop(_digest(model_id, prepared), None)


def _digest(model_id: str, prepared: Prepared) -> bytes:
    return hashlib.sha256(model_id.encode() + b"\0" + prepared.token_ids.tobytes()).digest()


class DeadLetters:
    """Writes the dead letters of one worker.

    Args:
        keeps_bodies: whether letters hold the chunk itself.
    """

    def __init__(
        self, queue: Queue, pool: str, worker_id: str, replies: Replies, measures: Measures, *, keeps_bodies: bool
    ) -> None:
        self._queue = queue
        self._pool = pool
        self._worker_id = worker_id
        self._replies = replies
        self._measures = measures
        self._keeps_bodies = keeps_bodies
        self._poison = Poison(asyncio.get_running_loop().time)
        self._burying: set[asyncio.Task[None]] = set()

    def num_crashes(self, model_id: str, prepared: Prepared) -> int:
        """How often the host died over this input of late."""
        return self._poison.count(model_id, prepared)

    def crashed(self, batch: Batch) -> None:
        """The host died while it ran this batch. Once too often, and the chunk of an item is given up."""
        self._poison.add(batch.model.id, [item.prepared for item in batch.items])
        for item in batch.items:
            item.num_crashes = self.num_crashes(batch.model.id, item.prepared)
            if item.num_crashes >= MAX_CRASHES:
                param = f"input[{item.work.place_of(item.index)}]"
                error = InternalError(f"the runtime died on {param} again and again; it is given up", param=param)
                self._give_up(item.work, error, "crashed")

    def acquit(self, item: WorkItem) -> None:
        """A suspect ran well."""
        self._poison.forget(item.work.model.id, item.prepared)

    def give_up_undelivered(self, work: Work) -> None:
        """A chunk came back from workers too often, unanswered."""
        tries = work.lease.delivery_count - 1
        self._give_up(work, InternalError(f"given up after {tries} tries that ended without an answer"), "undelivered")

    def refuses(self, work: Work) -> bool:
        """Refuse a prepared work if it holds an input that is known to kill the host; returns whether it does."""
        if not any(self.num_crashes(work.model.id, prepared) >= MAX_CRASHES for prepared in work.prepared):
            return False
        self._replies.refuse(work, InternalError("an input of this request killed the runtime a short while ago"))
        return True

    async def close(self) -> None:
        """Wait for what is being written."""
        if self._burying:
            await asyncio.wait(self._burying)

    def _give_up(self, work: Work, error: ShoalError, reason: Reason) -> None:
        if not work.is_open:
            return
        self._measures.dead_letters.value += 1
        lease = self._replies.refuse_on_loan(work, error)
        task = asyncio.create_task(self._bury(self._letter(work, error, reason), lease))
        self._burying.add(task)
        task.add_done_callback(self._burying.discard)

    def _letter(self, work: Work, error: ShoalError, reason: Reason) -> DeadLetter:
        chunk = work.chunk
        letter = DeadLetter(
            request_id=chunk.request_id,
            index=chunk.index,
            model=chunk.model,
            operation=chunk.operation,
            tenant=chunk.tenant,
            priority=chunk.priority,
            num_items=chunk.num_items,
            first_item=chunk.first_item,
            num_bytes=len(chunk.items),
            digest=hashlib.sha256(chunk.items).hexdigest(),
            reason=reason,
            error=error.to_body(),
            num_deliveries=work.lease.delivery_count,
            worker_id=self._worker_id,
            buried_at=time.time(),
        )
        if not self._keeps_bodies:
            return letter
        whole = msgspec.structs.replace(letter, chunk=encode(chunk))
        return whole if len(encode(whole)) <= self._queue.max_message_bytes else letter

    async def _bury(self, letter: DeadLetter, lease: Lease) -> None:
        """First the letter, then the message goes: if we die in between, it comes again."""
        logger.error(
            "Chunk %s.%d of %s is given up (%s): %s", letter.request_id, letter.index, letter.model, letter.reason,
            letter.error.message,
        )  # fmt: skip
        try:
            await self._queue.bury(self._pool, encode(letter))
        except ShoalError as error:
            logger.error("Its dead letter is lost: %s", error)
        lease.term()
