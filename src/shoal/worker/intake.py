"""From the queue to prepared items: pulls on the models' lanes, decoding, checks, tokenising.

What is taken, and when, is `taps`' decision; what runs when, the sidecar's.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from time import time
from typing import get_args

import msgspec

from shoal.adapters.base import Prepared
from shoal.errors import InternalError, InvalidRequest, ShoalError, UnknownModel
from shoal.queue.base import Lease, Queue
from shoal.types import Chunk, Lane, Priority, decode_chunk
from shoal.worker.dead_letters import DeadLetters
from shoal.worker.gone import Gone
from shoal.worker.measures import Measures
from shoal.worker.replies import Replies
from shoal.worker.taps import Tap, Taps
from shoal.worker.work import Model, Work

__all__ = ["Intake"]

logger = logging.getLogger(__name__)

INLINE_BYTES = 2048
"""Chunks up to this size are tokenised on the event loop: a thread costs more than they do."""

KEPT_DELIVERIES = 3
"""A message that comes too early goes back, but for so many deliveries: it may yet meet workers that die."""

_PRIORITIES: tuple[Priority, ...] = get_args(Priority)

Items = list[str | list[int]]
_decode = {"json": msgspec.json.Decoder(Items).decode, "msgpack": msgspec.msgpack.Decoder(Items).decode}
_decode_one = {
    "json": msgspec.json.Decoder(str | list[int]).decode,
    "msgpack": msgspec.msgpack.Decoder(str | list[int]).decode,
}


class Intake:
    """Receives chunks of the models that are open, and hands on each work once it is prepared.

    Args:
        taps: where the models' lanes are drawn from.
        wants_work: whether the device is about to need a batch.
        on_prepared: takes a work whose items are ready.
        dead_letters: where chunks go that came back too often; refuses those known to kill the host.
        gone: requests that nobody waits for.
    """

    def __init__(
        self,
        queue: Queue,
        pool: str,
        taps: Taps,
        wants_work: Callable[[], bool],
        replies: Replies,
        threads: Executor,
        on_prepared: Callable[[Work], None],
        dead_letters: DeadLetters,
        gone: Gone,
        measures: Measures,
        *,
        max_deliveries: int,
    ) -> None:
        self._queue = queue
        self._pool = pool
        self._taps = taps
        self._wants_work = wants_work
        self._replies = replies
        self._threads = threads
        self._on_prepared = on_prepared
        self._dead_letters = dead_letters
        self._gone = gone
        self._measures = measures
        self._max_deliveries = max_deliveries
        self._loop = asyncio.get_running_loop()
        self._preparing: set[asyncio.Task[None]] = set()
        self._taps_of: dict[Model, list[Tap]] = {}

    async def open(self, model: Model) -> None:
        """Open pulls on a model's lanes, the most urgent first; nothing comes before `start`."""
        taps = self._taps_of[model] = [Tap(model, priority) for priority in _PRIORITIES]
        await asyncio.gather(*(self._open(tap) for tap in taps))
        model.pulls = {tap.priority: tap.pull for tap in taps}

    async def _open(self, tap: Tap) -> None:
        lane = Lane(self._pool, tap.model.id, tap.priority)
        tap.pull = await self._queue.pull(lane, partial(self._receive, tap), partial(self._taps.tell, tap))

    def start(self, model: Model) -> None:
        """Let a model's chunks come."""
        self._taps.add(self._taps_of[model])

    async def close(self, model: Model) -> None:
        """Take no more of a model; what is on loan stays."""
        model.is_open = False
        taps = self._taps_of.pop(model, [])
        self._taps.forget(taps)
        await asyncio.gather(*(tap.pull.close() for tap in taps))
        self._taps.forget(taps)

    def _receive(self, tap: Tap, lease: Lease) -> None:
        is_taken = self._taps.came(tap)
        try:
            chunk = decode_chunk(lease.body)
        except msgspec.MsgspecError:
            logger.exception("A message of lane %s is no chunk; it is dropped", tap.model.id)
            lease.term()
            return
        if chunk.request_id in self._gone:
            self._measures.abandoned_at_pull.value += 1
            lease.ack()
        elif not self._replies.renew(chunk.chunk_id, lease):
            if is_taken or self._wants_work() or lease.delivery_count > self._max_deliveries - KEPT_DELIVERIES:
                self._accept(tap.model, lease, chunk)
            else:  # credit from when the device was idle brought it: somebody else may be free
                lease.nak()

    def _accept(self, model: Model, lease: Lease, chunk: Chunk) -> None:
        work = Work(model, lease, chunk, self._loop.time(), time())
        model.used_at = work.received_at
        self._replies.add(work)
        if lease.delivery_count > self._max_deliveries:
            self._dead_letters.give_up_undelivered(work)
        elif work.deadline <= work.received_at:
            self._replies.expire(work)
        elif len(chunk.items) <= INLINE_BYTES:
            self._prepared(work, _prepare(work))
        else:
            model.preparing_tokens += work.num_tokens
            self._taps.hold(model)
            task = self._loop.create_task(self._prepare_in_thread(work, work.num_tokens))
            self._preparing.add(task)
            task.add_done_callback(self._preparing.discard)

    async def _prepare_in_thread(self, work: Work, num_tokens: int) -> None:
        try:
            outcome = await self._loop.run_in_executor(self._threads, _prepare, work)
        finally:
            work.model.preparing_tokens -= num_tokens
        self._prepared(work, outcome)

    def _prepared(self, work: Work, outcome: Sequence[Prepared] | ShoalError) -> None:
        if not work.is_open:
            return
        if isinstance(outcome, ShoalError):
            self._replies.refuse(work, outcome)
            return
        work.prepare(outcome, self._loop.time())
        self._replies.recount(work, sum(item.cost for item in outcome))
        if not self._dead_letters.refuses(work):
            self._on_prepared(work)


def _prepare(work: Work) -> Sequence[Prepared] | ShoalError:
    """Tokenise a chunk, in any thread; an error is an outcome like any other."""
    chunk, model = work.chunk, work.model
    try:
        if chunk.lora:
            raise UnknownModel(f"{model.id} has no LoRA named {chunk.lora!r}", param="model")
        model.adapter.check(chunk.options)
        return model.adapter.prepare(_items(chunk), chunk.options, chunk.first_item)
    except ShoalError as error:
        return error
    except Exception as error:
        logger.exception("Preparing a chunk of %s failed", model.id)
        return InternalError(f"preparing failed: {type(error).__name__}: {error}")


def _items(chunk: Chunk) -> Items:
    """The items of a chunk.

    Raises:
        InvalidRequest: names the first item that is neither Unicode text nor a list of integers.
    """
    try:
        items = _decode[chunk.items_format](chunk.items)
    except msgspec.MsgspecError as error:
        raise _name_culprit(chunk, error) from None
    if len(items) != chunk.num_items:
        raise InternalError(f"the chunk announces {chunk.num_items} items and holds {len(items)}")
    return items


def _name_culprit(chunk: Chunk, error: msgspec.MsgspecError) -> InvalidRequest:
    """Decode the items one by one to find out which one it was."""
    if chunk.items_format == "msgpack":
        pieces = [bytes(raw) for raw in msgspec.msgpack.decode(chunk.items, type=list[msgspec.Raw])]
    else:  # the standard library lets half a surrogate pair through, and bytes that are no UTF-8 as if they were such
        values = json.loads(chunk.items.decode(errors="surrogateescape"))
        pieces = [json.dumps(value).encode() for value in values]
    for index, piece in enumerate(pieces, chunk.first_item):
        try:
            _decode_one[chunk.items_format](piece)
        except msgspec.MsgspecError as found:
            what = "is neither valid Unicode text nor a list of token ids"
            return InvalidRequest(f"input[{index}] {what}: {found}", param=f"input[{index}]")
    return InvalidRequest(f"input is malformed: {error}", param="input")
