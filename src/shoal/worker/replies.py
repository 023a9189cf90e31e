"""Answers: raw rows to finished results to reply bytes to the gateway, then the ack. Holds every work that is open.

Each work that was added leaves here exactly once: answered, refused or handed back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor

from shoal.errors import DeadlineExceeded, InternalError, ShoalError, TooLarge
from shoal.queue.base import Lease, Queue
from shoal.runtimes.base import Arrays
from shoal.types import ChunkReply, Rendered, StageTimes, encode
from shoal.worker.measures import Measures
from shoal.worker.render import render
from shoal.worker.work import Batch, Model, Work

__all__ = ["Replies"]

logger = logging.getLogger(__name__)


class Replies:
    """The open works of a sidecar.

    Args:
        threads: for results that take long to finish.

    Attributes:
        on_close: called when a work has left: it may have been all that there was to do.
    """

    def __init__(self, queue: Queue, measures: Measures, threads: Executor) -> None:
        self.on_close: Callable[[], None] = lambda: None
        self._queue = queue
        self._measures = measures
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, Work] = {}
        self._threads = threads
        self._finishing: set[asyncio.Task[None]] = set()
        self._left = asyncio.Event()

    def renew(self, chunk_id: str, lease: Lease) -> bool:
        """Put a new lease in the place of the old one, if the chunk is held already; returns whether it is.

        A chunk comes again when its lease ran out, or when the gateway published it once more.
        """
        work = self._open.get(chunk_id)
        if work is not None:
            work.lease = lease
        return work is not None

    def add(self, work: Work) -> None:
        """Take responsibility for a work."""
        self._open[work.chunk.chunk_id] = work
        work.model.hold(work.num_tokens)
        self._measures.took(work)

    def recount(self, work: Work, num_tokens: int) -> None:
        """Put the true number of tokens in the place of the gateway's estimate."""
        work.model.hold(num_tokens - work.num_tokens)
        prepare_s = work.prepared_at - work.received_at
        work.model.count_chunk(num_tokens, len(work.prepared), work.chunk.priority, prepare_s)
        work.num_tokens = num_tokens

    def of(self, model: Model | None = None) -> list[Work]:
        """What is open of a model, or of all."""
        return [work for work in self._open.values() if model is None or work.model is model]

    async def settled(self, model: Model | None = None) -> None:
        """Wait until nothing is open of a model, or of any."""
        while self.of(model):
            self._left.clear()
            await self._left.wait()

    def collect(self, batch: Batch, arrays: Arrays, seconds: float) -> None:
        """Give each work its rows of a batch; answer those that are complete."""
        rows_of: dict[Work, list[int]] = {}
        for row, item in enumerate(batch.items):
            rows_of.setdefault(item.work, []).append(row)
        for work, rows in rows_of.items():
            if not work.is_open:
                continue
            with self._answering(work):
                work.rows.put([batch.items[row].index for row in rows], arrays, rows)
                work.inference_s += seconds
                if work.rows.num_missing == 0:
                    self._answer(work)

    def complete(self, work: Work) -> None:
        """Answer a work that needs nothing from the device."""
        with self._answering(work):
            self._answer(work)

    def refuse(self, work: Work, error: ShoalError) -> None:
        """Answer with an error; the queue forgets the chunk."""
        if work.is_open:
            self._send(work, _refusal(work, error))

    def refuse_on_loan(self, work: Work, error: ShoalError) -> Lease:
        """Answer with an error, and leave it to the caller to end the lease."""
        self._reply(work, _refusal(work, error))
        self._close(work)
        return work.lease

    def forget(self, request_ids: Collection[str]) -> None:
        """Drop what is open of requests that nobody waits for any more; what is on its way falls out where it is."""
        for work in self.of():
            if work.chunk.request_id in request_ids:
                self._measures.abandoned_held.value += 1
                work.lease.ack()
                self._close(work)

    def expire(self, work: Work) -> None:
        """Answer that the caller's time ran out."""
        self.refuse(work, DeadlineExceeded("the deadline passed before the work was done"))

    def keep(self, now: float) -> None:
        """Tell the queue that we are at it still, for all that is open and has time left; expire the rest."""
        for work in self.of():
            if work.deadline <= now:
                self.expire(work)
            else:
                work.lease.in_progress()

    def hand_back(self, work: Work) -> None:
        """Give the chunk to another worker, unanswered."""
        work.lease.nak()
        self._measures.handed_back()
        self._close(work)

    @contextlib.contextmanager
    def _answering(self, work: Work) -> Iterator[None]:
        """What fails in here is the work's answer."""
        try:
            yield
        except ShoalError as error:
            self.refuse(work, _named(work, error))
        except Exception as error:
            logger.exception("Finishing a chunk of %s failed", work.model.id)
            self.refuse(work, InternalError(f"finishing failed: {type(error).__name__}: {error}"))

    def _answer(self, work: Work) -> None:
        if not work.model.adapter.takes_long(work.chunk.options):
            self._send_outputs(work, _outputs(work))
            return
        task = self._loop.create_task(self._answer_from_thread(work))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    async def _answer_from_thread(self, work: Work) -> None:
        with self._answering(work):
            outputs = await self._loop.run_in_executor(self._threads, _outputs, work)
            if work.is_open:  # its time may have run out meanwhile
                self._send_outputs(work, outputs)

    def _send_outputs(self, work: Work, outputs: list[Rendered]) -> None:
        chunk = work.chunk
        reply = ChunkReply(
            chunk.request_id,
            chunk.index,
            outputs=outputs,
            num_tokens=work.tokens_by_item,
            truncated=work.truncated_by_item,
            profile=work.model.profile,
            times=StageTimes(
                queue_s=work.queue_s,
                tokenize_s=work.prepared_at - work.received_at,
                batch_s=max(0.0, self._loop.time() - work.prepared_at - work.inference_s),
                inference_s=work.inference_s,
            ),
        )
        self._send(work, reply)

    def _send(self, work: Work, reply: ChunkReply) -> None:
        self._reply(work, reply)
        work.lease.ack()
        self._close(work)

    def _reply(self, work: Work, reply: ChunkReply) -> None:
        body = encode(reply)
        limit = self._queue.max_message_bytes
        if len(body) > limit and reply.error is None:
            raise TooLarge(
                f"The reply takes {len(body)} bytes in one piece; the queue carries {limit}.",
                hint="Send shorter texts, or fewer at once.",
            )
        self._queue.send(work.chunk.reply_to, body)
        self._measures.answered("ok" if reply.error is None else reply.error.code)

    def _close(self, work: Work) -> None:
        work.close()
        work.model.hold(-work.num_tokens)
        self._open.pop(work.chunk.chunk_id, None)
        self._left.set()
        self.on_close()


def _outputs(work: Work) -> list[Rendered]:
    """A work's raw rows as they stand in its reply; in any thread."""
    chunk = work.chunk
    finished = work.model.adapter.finish(work.rows.arrays(), chunk.options, work.prepared)
    return [render(result, how, chunk.first_item) for result, how in zip(finished, chunk.renders, strict=True)]


def _named(work: Work, error: ShoalError) -> ShoalError:
    """An adapter knows rows of a chunk; the caller knows items of a request."""
    row = re.fullmatch(r"row (\d+)", error.param or "")
    if row is None or len(work.prepared) != work.chunk.num_items:
        return error
    param = f"input[{work.chunk.first_item + int(row[1])}]"
    return type(error)(error.message.replace(row[0], param), param=param, hint=error.hint)


def _refusal(work: Work, error: ShoalError) -> ChunkReply:
    return ChunkReply(work.chunk.request_id, work.chunk.index, error=error.to_body())
