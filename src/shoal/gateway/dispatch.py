"""Publishes the chunks of a request, collects their replies and keeps the request until it is answered.

Requests share the workers by what they may have in the queue: the first chunks of each go to the lane `default`, so
that a short request never stands behind a long one; the rest of a long one goes to the lane `bulk`, a window at a time,
so that long ones take turns.

Every open request is held here, so the queue may forget: when a lost queue is back, what is still unanswered is
published again under the same ids, and a second reply is dropped. One timer looks after all deadlines and clients that
hang up; it runs while requests are open. It must not know surfaces.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from shoal.errors import DeadlineExceeded, NotReady, ShoalError, TooLarge
from shoal.gateway.ask import Ask
from shoal.gateway.chunks import cut
from shoal.gateway.directory import Directory, Served
from shoal.gateway.http import ClientGone, Receive
from shoal.gateway.items import Items
from shoal.gateway.measures import Measures
from shoal.queue.base import Listener, Queue
from shoal.types import (
    Chunk,
    ChunkReply,
    ClassifyOptions,
    EmbedOptions,
    Lane,
    ModelCard,
    Options,
    Priority,
    RerankOptions,
    decode_reply,
    encode,
)

__all__ = ["Dispatch"]

_log = logging.getLogger(__name__)

_SWEEP_S = 0.02
"""How often deadlines are looked at: a reply that comes too late is at most this much later."""

_WATCH_AFTER_S = 0.1
"""A request that takes longer is watched for a client that hangs up; a task for each shorter one would cost more."""

_PRIORITIES: tuple[Priority, Priority] = ("default", "bulk")
_FIRST_CHUNKS = 2
"""So many chunks of each request go to the lane `default`, the rest to `bulk`."""

_WINDOW_CHUNKS = 8
"""So many chunks of a request may be in the queue at once, for each worker that has the model ready. A worker holds two
full batches, and a chunk may turn out to be a third of the quantum that it was taken for."""

_ENVELOPE_BYTES = 32 * 1024
"""Room for the rest of a chunk or reply, beside its items and options."""


class _OpenRequest:
    """A request that is not answered yet."""

    __slots__ = (
        "chunks",
        "deadline",
        "done",
        "has_news",
        "missing",
        "model",
        "num_published",
        "opened_at",
        "publisher",
        "receive",
        "replies",
        "watcher",
    )

    def __init__(
        self,
        model: str,
        chunks: list[tuple[Lane, str, bytes]],
        done: asyncio.Future[None],
        now: float,
        timeout_s: float,
        receive: Receive,
    ) -> None:
        self.model = model
        self.chunks = chunks
        self.num_published = 0
        self.has_news = asyncio.Event()
        self.replies: list[ChunkReply | None] = [None] * len(chunks)
        self.missing = len(chunks)
        self.done = done
        self.opened_at = now
        self.deadline = now + timeout_s
        self.receive = receive
        self.publisher: asyncio.Task[Any] | None = None
        self.watcher: asyncio.Task[None] | None = None

    def accept(self, reply: ChunkReply) -> bool:
        """Take in the reply to a chunk; False if there was one before."""
        if not 0 <= reply.index < len(self.replies) or self.replies[reply.index] is not None:
            return False
        self.replies[reply.index] = reply
        self.missing -= 1
        self.has_news.set()
        if reply.error is not None:
            self.fail(ShoalError.from_body(reply.error))
        elif self.missing == 0 and not self.done.done():
            self.done.set_result(None)
        return True

    async def next_chunks(self, window: int) -> range:
        """The chunks to publish now, once there is room for some; none if there is nothing left to publish."""
        while self.num_published < len(self.chunks) and not self.done.done():
            num_answered = len(self.chunks) - self.missing
            stop = min(len(self.chunks), num_answered + window)
            if stop > self.num_published:
                first, self.num_published = self.num_published, stop
                return range(first, stop)
            self.has_news.clear()
            await self.has_news.wait()
        return range(0)

    def fail(self, error: Exception) -> None:
        """End the request with an error, unless it has ended."""
        if not self.done.done():
            self.done.set_exception(error)

    def abandon(self, error: Exception) -> None:
        """As `fail`, and do not wait for the queue to take its chunks."""
        self.fail(error)
        if self.publisher is not None:
            self.publisher.cancel()

    async def watch(self) -> None:
        """End the request when its client hangs up."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.abandon(ClientGone())

    def close(self) -> None:
        if self.watcher is not None:
            self.watcher.cancel()
        if self.done.done() and not self.done.cancelled():
            self.done.exception()  # whoever raised first has told it already
        else:
            self.done.cancel()


class Dispatch:
    """The open requests of one gateway."""

    def __init__(self, queue: Queue, pool: str, gateway_id: str, directory: Directory, measures: Measures) -> None:
        self._queue = queue
        self._pool = pool
        self._reply_to = f"reply.{gateway_id}"
        self._directory = directory
        self._measures = measures
        self._open: dict[str, _OpenRequest] = {}
        self._num_reconnects = 0
        self._republishing: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._listener: Listener | None = None

    @functools.cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        # Asked once: each asyncio.get_running_loop() is a system call in CPython 3.11.
        return asyncio.get_running_loop()

    async def start(self) -> None:
        self._listener = await self._queue.listen(self._reply_to, self._on_reply)
        self._queue.on_reconnect(self._on_reconnect)
        self._directory.on_change(self._fail_what_cannot_load)

    async def stop(self) -> None:
        """Fail what is still open."""
        for request in list(self._open.values()):
            request.abandon(NotReady("The server is shutting down.", retry_after_s=1.0))
        if self._listener is not None:
            await self._listener.close()

    @property
    def num_open_chunks(self) -> int:
        """Chunks published or about to be, without a reply."""
        return sum(request.missing for request in self._open.values())

    @property
    def open_models(self) -> set[str]:
        """Models that somebody waits for."""
        return {request.model for request in self._open.values()}

    async def run(
        self,
        ask: Ask,
        options: Options,
        served: Served,
        items: Items,
        *,
        request_id: str,
        timeout_s: float,
        spent_s: float,
        receive: Receive,
    ) -> list[ChunkReply]:
        """The replies to all chunks of a request, in order.

        Args:
            timeout_s: what the request may take.
            spent_s: what it has taken so far.

        Raises:
            ShoalError: the first error that a worker answered with.
            DeadlineExceeded: after `timeout_s`.
            NotReady: the same, with the model still loading.
            ClientGone: `receive` said so.
        """
        chunks = self._chunks(ask, options, served, items, request_id, time.time() + timeout_s - spent_s)
        loop = self._loop
        request = _OpenRequest(served.card.id, chunks, loop.create_future(), loop.time() - spent_s, timeout_s, receive)
        self._open[request_id] = request
        if self._sweep is None:
            self._sweep = loop.call_later(_SWEEP_S, self._look_after)
        try:
            await self._publish_all(request)
            await request.done
        finally:
            del self._open[request_id]
            request.close()
        return request.replies  # type: ignore[return-value]  # none is missing

    def _chunks(
        self, ask: Ask, options: Options, served: Served, items: Items, request_id: str, deadline: float
    ) -> list[tuple[Lane, str, bytes]]:
        card = served.card
        limit_bytes = self._queue.max_message_bytes - _ENVELOPE_BYTES - len(encode(options))
        sizes = [len(item) for item in items.raw]
        parts = cut(
            sizes,
            quantum_tokens=served.quantum_tokens,
            max_length=sys.maxsize if _is_run_whole(options) else card.max_length,
            max_chunk_bytes=limit_bytes,
            max_chunk_items=max(1, limit_bytes // _reply_bytes(ask, options, card)),
            shared_bytes=len(options.query) if isinstance(options, RerankOptions) else 0,
            runs_per_item=max(1, len(options.labels)) if isinstance(options, ClassifyOptions) else 1,
        )
        if max(sizes) > limit_bytes:
            _refuse_unsendable(sizes, limit_bytes)
        published_at = time.time()
        lanes = {priority: Lane(self._pool, card.id, priority) for priority in _PRIORITIES}
        chunks = []
        for index, (start, stop, tokens) in enumerate(parts):
            chunk = Chunk(
                request_id=request_id,
                index=index,
                model=card.id,
                options=options,
                items=items.pack(start, stop),
                items_format=items.format,
                num_items=stop - start,
                first_item=start,
                estimated_tokens=tokens,
                reply_to=self._reply_to,
                renders=ask.renders,
                deadline=deadline,
                priority=_PRIORITIES[index >= _FIRST_CHUNKS],
                published_at=published_at,
            )
            chunks.append((lanes[chunk.priority], chunk.chunk_id, encode(chunk)))
        return chunks

    async def _publish_all(self, request: _OpenRequest) -> None:
        """Hand all chunks to the queue, a window at a time; an error is left in `request.done`."""
        request.publisher = asyncio.current_task(self._loop)
        try:
            while indices := await request.next_chunks(self._window(request.model)):
                if len(indices) == 1:
                    await self._publish(request, indices[0])
                else:
                    await asyncio.gather(*(self._publish(request, index) for index in indices))
        except asyncio.CancelledError:
            if request.publisher is None or not request.done.done():
                raise
            request.publisher.uncancel()  # `abandon` did it
        finally:
            request.publisher = None

    def _window(self, model: str) -> int:
        served = self._directory.get(model)
        return _WINDOW_CHUNKS * max(1, len(served.loaded) if served is not None else 1)

    async def _publish(self, request: _OpenRequest, index: int) -> None:
        num_reconnects = self._num_reconnects
        try:
            await self._queue.publish(*request.chunks[index])
        except NotReady as error:
            # With the queue away, the request waits: its chunks go out when the queue is back. If it has come back in
            # the meantime, they went out already.
            if self._queue.is_connected and num_reconnects == self._num_reconnects:
                request.fail(error)
        except Exception as error:
            request.fail(error)

    def _on_reply(self, body: bytes) -> None:
        try:
            reply = decode_reply(body)
        except msgspec.MsgspecError:
            _log.exception("a message to the reply address is no reply")
            return
        request = self._open.get(reply.request_id)
        if request is None or not request.accept(reply):
            self._measures.dropped_replies.value += 1

    def _on_reconnect(self) -> None:
        self._num_reconnects += 1
        for request in self._open.values():
            task = asyncio.ensure_future(self._publish_missing(request))
            self._republishing.add(task)
            task.add_done_callback(self._republishing.discard)

    async def _publish_missing(self, request: _OpenRequest) -> None:
        missing = [index for index in range(request.num_published) if request.replies[index] is None]
        await asyncio.gather(*(self._publish(request, index) for index in missing))

    def _fail_what_cannot_load(self) -> None:
        for request in self._open.values():
            failure = self._directory.failure(request.model)
            if failure is not None:
                request.abandon(failure)

    def _look_after(self) -> None:
        """Deadlines and clients that hang up, for all open requests."""
        loop = self._loop
        now = loop.time()
        for request in self._open.values():
            if now >= request.deadline:
                request.abandon(self._too_late(request))
            elif request.watcher is None and now - request.opened_at > _WATCH_AFTER_S:
                request.watcher = loop.create_task(request.watch())
        self._sweep = loop.call_later(_SWEEP_S, self._look_after) if self._open else None

    def _too_late(self, request: _OpenRequest) -> ShoalError:
        if not self._queue.is_connected:
            return NotReady("The queue cannot be reached.", retry_after_s=2.0)
        timeout_s = request.deadline - request.opened_at
        return self._directory.not_loaded(request.model) or DeadlineExceeded(
            f"The request was not answered within its {timeout_s:.3g} s.",
            hint="Allow more with the header X-Shoal-Timeout (seconds), or send fewer texts at once.",
        )


def _is_run_whole(options: Options) -> bool:
    """Whether nothing of a text is cut away, however long it is."""
    return isinstance(options, EmbedOptions) and options.overflow == "chunk"


_NUMBER_BYTES = {"json": 25, "entries": 35, "base64": 6, "raw": 4, "msgpack": 9}
_SPARSE_ENTRIES = 2048
"""Expected of a sparse vector at most, where the request does not say."""
_LABEL_BYTES = 64


def _reply_bytes(ask: Ask, options: Options, card: ModelCard) -> int:
    """An upper bound for one item of a reply."""
    total = 64
    for place, render in enumerate(ask.renders):
        number_bytes = _NUMBER_BYTES[render.encoding]
        total += len(render.before) + len(render.between) + len(render.after)
        match options:
            case EmbedOptions() if options.outputs[place : place + 1] == ("sparse",):
                total += 2 * number_bytes * (options.top_k or _SPARSE_ENTRIES)
            case EmbedOptions():
                total += number_bytes * (options.dimensions or card.dimensions)
            case ClassifyOptions():
                labels = options.labels or card.labels
                total += sum(_LABEL_BYTES + 6 * len(label) for label in labels)
            case RerankOptions():
                total += number_bytes
    return total


def _refuse_unsendable(sizes: Sequence[int], limit_bytes: int) -> None:
    index = next(index for index, size_bytes in enumerate(sizes) if size_bytes > limit_bytes)
    raise TooLarge(
        f"input[{index}] is {sizes[index]} bytes as sent; the queue carries at most {limit_bytes} in a message.",
        param=f"input[{index}]",
    )
