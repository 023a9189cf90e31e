"""From the queue to prepared items: standing pulls with credit, decoding, checks, tokenising.

It decides how much this worker takes (about two full batches: what runs and what is ready to run next), never what runs
when.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from time import time
from typing import get_args

import msgspec

from shoal.adapters.base import Prepared
from shoal.errors import InternalError, InvalidRequest, ShoalError, UnknownModel
from shoal.queue.base import Lease, Pull, Queue
from shoal.types import Chunk, Lane, Priority, decode_chunk
from shoal.worker.dead_letters import DeadLetters
from shoal.worker.gone import Gone
from shoal.worker.measures import Measures
from shoal.worker.replies import Replies
from shoal.worker.work import Model, Work

__all__ = ["Intake"]

logger = logging.getLogger(__name__)

INLINE_BYTES = 2048
"""Chunks up to this size are tokenised on the event loop: a thread costs more than they do."""

HELD_BATCHES = 2
LEAST_BATCHES = 0.25
"""Held of a lane however much waits in those before it."""

MAX_CREDIT = 256

_PRIORITIES: tuple[Priority, ...] = get_args(Priority)

Items = list[str | list[int]]
_decode = {"json": msgspec.json.Decoder(Items).decode, "msgpack": msgspec.msgpack.Decoder(Items).decode}
_decode_one = {
    "json": msgspec.json.Decoder(str | list[int]).decode,
    "msgpack": msgspec.msgpack.Decoder(str | list[int]).decode,
}


class Intake:
    """Pulls chunks of the given models and hands on each work once it is prepared.

    Args:
        models: those that share the device, as a live view.
        on_prepared: takes a work whose items are ready.
        dead_letters: where chunks go that came back too often; refuses those known to kill the host.
        gone: requests that nobody waits for.
    """

    def __init__(
        self,
        queue: Queue,
        pool: str,
        models: Collection[Model],
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
        self._models = models
        self._replies = replies
        self._threads = threads
        self._on_prepared = on_prepared
        self._dead_letters = dead_letters
        self._gone = gone
        self._measures = measures
        self._max_deliveries = max_deliveries
        self._loop = asyncio.get_running_loop()
        self._preparing: set[asyncio.Task[None]] = set()
        self._is_top_up_due = False
        self._short: set[Model] = (
            set()
        )  # models whose lanes may lack credit: looking at all others would cost each request
        replies.on_close = self.top_up_soon

    async def open(self, model: Model) -> None:
        """Open pulls on a model's lanes, the most urgent first; they get credit once it is one of the models."""
        lanes = [Lane(self._pool, model.id, priority) for priority in _PRIORITIES]
        pulls = await asyncio.gather(*(self._queue.pull(lane, partial(self._receive, model)) for lane in lanes))
        model.pulls = dict(zip(_PRIORITIES, pulls, strict=True))
        self._short.add(model)

    async def close(self, model: Model) -> None:
        """Pull no more of a model; what is on loan stays."""
        model.is_open = False
        self._short.discard(model)
        await asyncio.gather(*(pull.close() for pull in model.pulls.values()))

    def top_up_soon(self) -> None:
        """Grant credit once for all that comes and goes in this turn of the event loop."""
        if not self._is_top_up_due:
            self._is_top_up_due = True
            self._loop.call_soon(self._top_up)

    def _top_up(self) -> None:
        self._is_top_up_due = False
        held_s = self._held_s()
        self._short = {model for model in self._short if not self._grant_room(model, held_s)}

    def _held_s(self) -> dict[Priority, float]:
        """Seconds of all models' work on loan, by lane."""
        holders = [model for model in self._models if model.held_tokens]
        return {priority: sum(model.held_in_s(priority) for model in holders) for priority in _PRIORITIES}

    def _grant_room(self, model: Model, held_s: Mapping[Priority, float]) -> bool:
        """Grant a model's pulls credit for the room there is; returns whether all have as much as they ever get.

        Room is seconds of work, shared by all models. A lane fills what the lanes before it leave, and a little in any
        case, so that none is starved. What it fills is no less room for those before it: the batcher puts them first.

        Args:
            held_s: see `_held_s`.
        """
        full_s = model.full_batch_tokens * model.seconds_per_token
        room_s, has_all = HELD_BATCHES * full_s, True
        for priority, pull in model.pulls.items():
            chunk_tokens = model.full_batch_tokens if priority == "bulk" else model.tokens_per_chunk
            chunks_per_s = 1 / (model.seconds_per_token * max(chunk_tokens, 1.0) * len(self._models))
            most_s = max(room_s, LEAST_BATCHES * full_s)
            has_all &= _grant(pull, (most_s - held_s[priority]) * chunks_per_s, most_s * chunks_per_s)
            room_s -= held_s[priority]
        return has_all

    def _receive(self, model: Model, lease: Lease) -> None:
        try:
            chunk = decode_chunk(lease.body)
        except msgspec.MsgspecError:
            logger.exception("A message of lane %s is no chunk; it is dropped", model.id)
            lease.term()
        else:
            if chunk.request_id in self._gone:
                self._measures.abandoned_at_pull.value += 1
                lease.ack()
            elif not self._replies.renew(chunk.chunk_id, lease):
                self._accept(model, lease, chunk)
        if model.is_open and not self._grant_room(model, self._held_s()):
            self._short.add(model)

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
            task = self._loop.create_task(self._prepare_in_thread(work))
            self._preparing.add(task)
            task.add_done_callback(self._preparing.discard)

    async def _prepare_in_thread(self, work: Work) -> None:
        self._prepared(work, await self._loop.run_in_executor(self._threads, _prepare, work))

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


def _grant(pull: Pull, room_chunks: float, most_chunks: float) -> bool:
    """Raise a pull's credit to the chunks that there is room for; returns whether it could never have more.

    Seldom, as a grant is a message.
    """
    if room_chunks <= 0:
        return False
    wanted, most = (max(1, min(int(chunks), MAX_CREDIT)) for chunks in (room_chunks, most_chunks))
    if pull.credit <= wanted // 2:
        pull.grant(wanted - pull.credit)
    return wanted == most


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
