"""Keeps each request until it is answered: through the gate, out to the queue, and the replies back in.

Every open request is held here, so the queue may forget: when a lost queue is back, what is still unanswered is
published again under the same ids, and a second reply is dropped. One timer looks after all deadlines and clients that
hang up; it runs while requests are open. What goes when is the gate's business. It must not know surfaces.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Collection

import msgspec

from shoal.errors import DeadlineExceeded, NotReady, ShoalError
from shoal.gateway.ask import Ask
from shoal.gateway.chunks import Chunks
from shoal.gateway.directory import Directory, Served
from shoal.gateway.gate import Gate
from shoal.gateway.http import Receive
from shoal.gateway.items import Items
from shoal.gateway.measures import Measures
from shoal.gateway.open_request import OpenRequest
from shoal.gateway.turns import LANES
from shoal.queue.base import Listener, Queue
from shoal.types import ChunkReply, Gone, Lane, Options, Priority, decode_reply, encode

__all__ = ["Dispatch"]

_log = logging.getLogger(__name__)

_SWEEP_S = 0.02
"""How often deadlines are looked at: a reply that comes too late is at most this much later."""

_WATCH_AFTER_S = 0.1
"""A request that takes longer is watched for a client that hangs up; a task for each shorter one would cost more."""

_GONE_S = 0.005
"""So long, those who left are gathered for one message to the workers."""

_GONE_IN_A_MESSAGE = 1000


class Dispatch:
    """The open requests of one gateway.

    Args:
        max_wait_s: a request that would have to wait longer is refused.
    """

    def __init__(
        self,
        queue: Queue,
        pool: str,
        gateway_id: str,
        directory: Directory,
        measures: Measures,
        max_wait_s: float,
    ) -> None:
        self._queue = queue
        self._pool = pool
        self._reply_to = f"reply.{gateway_id}"
        self._directory = directory
        self._measures = measures
        self._max_wait_s = max_wait_s
        self._open: dict[str, OpenRequest] = {}
        self._gates: dict[str, Gate] = {}
        self._crowded: set[str] = set()
        self._lanes: dict[str, list[Lane]] = {}
        self._gone: list[str] = []
        self._num_reconnects = 0
        self._sweep: asyncio.TimerHandle | None = None
        self._listener: Listener | None = None

    @functools.cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        # Asked once: each asyncio.get_running_loop() is a system call in CPython 3.11.
        return asyncio.get_running_loop()

    async def start(self) -> None:
        self._listener = await self._queue.listen(self._reply_to, self._on_reply)
        self._queue.on_reconnect(self._on_reconnect)
        self._directory.on_change(self._on_change)

    def refuse_open(self) -> None:
        """Answer all that is still open: somebody else may do it."""
        for request in list(self._open.values()):
            request.fail(NotReady("The server is shutting down.", retry_after_s=1.0))

    async def stop(self) -> None:
        """Fail what is still open."""
        self.refuse_open()
        if self._listener is not None:
            await self._listener.close()

    @property
    def num_open_chunks(self) -> int:
        """Chunks published and not answered."""
        return sum(len(request.on_their_way) for request in self._open.values())

    @property
    def open_models(self) -> set[str]:
        """Models that somebody waits for."""
        return {request.model for request in self._open.values()}

    @property
    def waiting_s(self) -> float:
        """Seconds of work that waits here, over all models."""
        return sum(gate.waiting_s for gate in self._gates.values())

    @property
    def on_way_s(self) -> float:
        """Seconds of work published and not answered, over all models."""
        return sum(gate.on_way_s for gate in self._gates.values())

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
        tenant: str = "",
        priority: Priority = "default",
    ) -> list[ChunkReply]:
        """The replies to all chunks of a request, in order.

        Args:
            timeout_s: what the request may take.
            spent_s: what it has taken so far.
            tenant: who asks; tenants share the workers.

        Raises:
            ShoalError: the first error that a worker answered with.
            Overloaded: it would wait too long for its turn.
            DeadlineExceeded: after `timeout_s`.
            NotReady: the same, with the model still loading.
            ClientGone: `receive` said so.
        """
        unix_now = time.time()
        chunks = Chunks(
            ask,
            options,
            served.card,
            items,
            quantum_tokens=served.quantum_tokens,
            max_message_bytes=self._queue.max_message_bytes,
            request_id=request_id,
            reply_to=self._reply_to,
            tenant=tenant,
            deadline=unix_now + timeout_s - spent_s,
            waiting_since=unix_now,
        )
        loop = self._loop
        now = loop.time()
        model = served.card.id
        request = OpenRequest(
            model, tenant, LANES.index(priority), chunks, loop.create_future(), now - spent_s, timeout_s, receive
        )
        gate = self._gates.get(model) or self._open_gate(served)
        self._open[request_id] = request
        replies = request.replies
        if self._sweep is None:
            self._sweep = loop.call_later(_SWEEP_S, self._look_after)
        try:
            gate.enter(request, now, self._max_wait_s)
            await request.done
        finally:
            del self._open[request_id]
            if request.missing and gate.leave(request, loop.time()):
                self._say_gone(request_id)
            request.close()
            del request  # it holds the error, whose traceback holds this frame
        return replies  # type: ignore[return-value]  # none is missing

    def check(self, model: str | None, tenant: str, priority: Priority, left_s: float) -> None:
        """Refuse a request of which only the headers are known, if `run` would refuse it however small it is.

        Args:
            model: None where the body names it: then only if it would be refused for every model served.

        Raises:
            Overloaded: it would wait too long for its turn.
        """
        if model is not None:
            served = self._directory.get(model)
            gates = [gate] if served and (gate := self._gates.get(served.card.id)) else []
        elif len(self._crowded) >= self._directory.num_models and self._crowded.issuperset(self._directory.ids):
            gates = [self._gates[model] for model in self._directory.ids]
        else:
            return
        now, rank = self._loop.time(), LANES.index(priority)
        waits = [(gate.wait(rank, tenant, 1, now, left_s, self._max_wait_s), gate.model) for gate in gates]
        if waits and all(wait.is_too_long for wait, _ in waits):
            shortest, name = min(waits)
            raise shortest.error(name)

    def _open_gate(self, served: Served) -> Gate:
        model = served.card.id
        gate = self._gates[model] = Gate(model, self._publish, self._crowded)
        self._lanes[model] = [Lane(self._pool, model, priority) for priority in LANES]
        gate.know(served.loaded, self._loop.time())
        return gate

    def _publish(self, request: OpenRequest, index: int, rank: int) -> None:
        chunk_id, body = request.chunks.write(index, LANES[rank])
        on_failure = functools.partial(self._on_refusal, request, self._num_reconnects)
        self._queue.post(self._lanes[request.model][rank], chunk_id, body, on_failure)

    def _on_refusal(self, request: OpenRequest, num_reconnects: int, error: Exception) -> None:
        """With the queue away, a request waits: its chunks go out when the queue is back. If it has come back in the
        meantime, they went out already."""
        is_away = not self._queue.is_connected or num_reconnects != self._num_reconnects
        if not (is_away and isinstance(error, NotReady)):
            request.fail(error)

    def _on_reply(self, body: bytes) -> None:
        try:
            reply = decode_reply(body)
        except msgspec.MsgspecError:
            _log.exception("a message to the reply address is no reply")
            return
        request = self._open.get(reply.request_id)
        if request is None or not request.expects(reply):
            self._measures.dropped_replies.value += 1
            return
        self._gates[request.model].answered(request, reply, self._loop.time())
        request.accept(reply)

    def _on_reconnect(self) -> None:
        self._num_reconnects += 1
        for request in self._open.values():
            for index in request.on_their_way:
                self._publish(request, index, request.ranks[index])

    def _on_change(self, models: Collection[str]) -> None:
        """The directory has news of these: windows change, and what cannot load fails."""
        now = self._loop.time()
        for model in models:
            if (gate := self._gates.get(model)) is not None:
                served = self._directory.get(model)
                gate.know(served.loaded if served is not None else (), now)
        for request in self._open.values():
            if request.model in models and (failure := self._directory.failure(request.model)) is not None:
                request.fail(failure)

    def _look_after(self) -> None:
        """Deadlines and clients that hang up, for all open requests."""
        loop = self._loop
        now = loop.time()
        for request in self._open.values():
            if now >= request.deadline:
                request.fail(self._too_late(request))
            elif request.watcher is None and now - request.opened_at > _WATCH_AFTER_S:
                request.watcher = loop.create_task(request.watch())
        self._sweep = loop.call_later(_SWEEP_S, self._look_after) if self._open else None

    def _say_gone(self, request_id: str) -> None:
        if not self._gone:
            self._loop.call_later(_GONE_S, self._send_gone)
        self._gone.append(request_id)

    def _send_gone(self) -> None:
        gone, self._gone = self._gone, []
        for start in range(0, len(gone), _GONE_IN_A_MESSAGE):
            ids = tuple(gone[start : start + _GONE_IN_A_MESSAGE])
            self._queue.send(f"gone.{self._pool}", encode(Gone(ids)))

    def _too_late(self, request: OpenRequest) -> ShoalError:
        if not self._queue.is_connected:
            return NotReady("The queue cannot be reached.", retry_after_s=2.0)
        timeout_s = request.deadline - request.opened_at
        return self._directory.not_loaded(request.model) or DeadlineExceeded(
            f"The request was not answered within its {timeout_s:.3g} s.",
            hint="Allow more with the header X-Shoal-Timeout (seconds), or send fewer texts at once.",
        )
