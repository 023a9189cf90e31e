"""The sidecar of one device: receive, schedule, run, reply.

`admit` receives, `pump` schedules and runs, `_landed` replies; they are the worker's core loop, driven by events.

- An idle device gets whatever waits at once.
- Of a busy one, the next batch is taken from the queue shortly before the running one should end, and none after it:
  until then, whoever is free first may have it. Where it is not full, it gets at the last moment what has come since.
- At most one batch is sent ahead of the one that runs, so that the device never waits for us: a full one in the last
  quarter of the running batch, a partial one only when that is about to end, as it may still grow until then.
- Of several models, the one whose first item has the oldest virtual start goes next.

What goes into a batch is the batcher's decision, what is taken from the queue the intake's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from functools import partial
from time import time

from shoal.errors import InternalError, NotReady, ShoalError
from shoal.queue.alarm import Alarm
from shoal.queue.base import Queue
from shoal.runtimes.base import Arrays
from shoal.runtimes.link import HostLink
from shoal.settings import QueueSettings, WorkerSettings
from shoal.types import Priority
from shoal.worker.batcher import virtual_start
from shoal.worker.dead_letters import DeadLetters
from shoal.worker.flight import Flight
from shoal.worker.gone import Gone
from shoal.worker.intake import Intake
from shoal.worker.measures import Measures
from shoal.worker.replies import Replies
from shoal.worker.taps import Tap, Taps
from shoal.worker.work import Batch, Model, Work, WorkItem

__all__ = ["Sidecar"]

logger = logging.getLogger(__name__)

HANG_S = 60.0
"""A batch that takes so much longer than expected counts as a crash: the host is killed."""

MEMORY_RETRY_S = 60.0
"""So long after a batch did not fit into memory, larger ones are tried again."""

TIMER_S = 0.001
"""A timer may come so much early."""

HEAD_START: dict[Priority, float] = {"interactive": 2.0, "default": 0.0, "bulk": -2.0}
"""Latency objectives by which a lane's items count as older, or younger, than they are. Age counts from their arrival
at the queue, where a gateway lets no more than about two batches a worker wait."""


class Sidecar:
    """Serves the models that are open on one device.

    Args:
        link: the device's runtime host.
        on_change: called when a model's quantum changes.
    """

    def __init__(
        self,
        queue: Queue,
        link: HostLink,
        threads: Executor,
        settings: WorkerSettings,
        queue_settings: QueueSettings,
        worker_id: str,
        on_change: Callable[[], None],
        measures: Measures,
    ) -> None:
        self.models: dict[str, Model] = {}
        self.replies = Replies(queue, measures, threads)
        self._loop = asyncio.get_running_loop()
        self._gone = Gone(self._loop.time)
        self._flight = Flight()
        self._has_taken_last = False
        self._taps = Taps(self._start_of, settings.latency_objective_ms / 1000, self._pump_if_wanted)
        self.replies.on_close = self._pump_if_wanted
        self._dead_letters = dead_letters = DeadLetters(
            queue, queue_settings.pool, worker_id, self.replies, measures, keeps_bodies=settings.keep_dead_bodies
        )
        self._measures = measures
        self._intake = Intake(
            queue,
            queue_settings.pool,
            self._taps,
            self._wants_work,
            self.replies,
            threads,
            self.admit,
            dead_letters,
            self._gone,
            measures,
            max_deliveries=queue_settings.max_deliveries,
        )
        self._link = link
        self._settings = settings
        self._on_change = on_change
        self._again: deque[Batch] = deque()
        self._alarm = Alarm(self.pump)
        self._is_paused = False
        self._is_pump_due = False
        self._keep_alive_s = queue_settings.lease_s / 3
        self._keeper: asyncio.TimerHandle | None = None
        self.num_batches = 0
        self.num_items = 0

    # Receive

    async def open(self, model: Model) -> None:
        """Serve a model from now on; its session is loaded."""
        await self._intake.open(model)
        self.models[model.id] = model
        self._intake.start(model)
        if self._keeper is None:
            self._keep_leases()

    def admit(self, work: Work) -> None:
        """Let a work's prepared items wait for the device; answer it if they need none."""
        model = work.model
        arrived_at = work.arrived_at - self._head_start_s(work.chunk.priority)
        if work.rows.num_missing == 0:
            self.replies.complete(work)
            return
        for index, prepared in enumerate(work.prepared):
            cost_s = model.cost.c_s * prepared.cost
            item = WorkItem(work, index, prepared, virtual_start(arrived_at, cost_s))
            item.num_crashes = self._dead_letters.num_crashes(model.id, prepared)
            model.waiting.add(item, item.start)
        self._taps.hold(model)
        self._pump_soon()

    def forget(self, request_ids: Collection[str]) -> None:
        """Nobody waits for these requests any more: drop their chunks, here and as they come."""
        self._gone.add(request_ids)
        self.replies.forget(request_ids)

    # Schedule

    def _head_start_s(self, priority: Priority) -> float:
        return HEAD_START[priority] * self._settings.latency_objective_ms / 1000

    def _start_of(self, tap: Tap) -> float:
        """Virtual start of an item in the queue, of the size that items there have."""
        age_s = time() - tap.pull.waiting_since
        return virtual_start(self._loop.time() - age_s - self._head_start_s(tap.priority), tap.model.item_s)

    def _wants_work(self) -> bool:
        """Whether the next batch should be here now, be it for a host that is about to be back."""
        if self._flight.is_full:
            return False
        return not self._flight or self._loop.time() > self._flight.takes_start_at - TIMER_S

    def _pump_if_wanted(self) -> None:
        if self._wants_work():
            self._pump_soon()

    def _pump_soon(self) -> None:
        """Pump once all that arrived in this turn of the event loop is in: what comes together should go together."""
        if not self._is_pump_due:
            self._is_pump_due = True
            self._loop.call_soon(self.pump)

    def pump(self) -> None:
        """Send the device what it should have now."""
        self._is_pump_due = False
        self._take()
        while (batch := self._next_batch()) is not None:
            self._launch(batch)
            self._take()

    def _take(self) -> None:
        """Have the next batch taken from the queue if it is time for that; if not, wake up when it is."""
        if self._wants_work():
            if not self._has_taken_last and self._loop.time() > self._flight.last_take_at - TIMER_S:
                self._has_taken_last = True
                self._taps.look_again()
            self._taps.take(is_idle=not self._flight)
            if not self._has_taken_last:
                self._alarm.set(self._flight.last_take_at)
        elif not self._flight.is_full:
            self._alarm.set(self._flight.takes_start_at)

    def _next_batch(self) -> Batch | None:
        if self._is_paused or self._flight.is_full or self._taps.is_taking:
            return None
        if self._again:
            return self._again.popleft()
        waiting = [model for model in self._taps.holders if model.waiting and self.models.get(model.id) is model]
        model = min(waiting, key=lambda model: model.waiting.head, default=None)
        if model is None or not model.waiting:
            return None
        if self._flight and not self._may_lead(model):
            return None
        picked = model.waiting.take(self._loop.time(), model.quantum_tokens, model.max_items)
        for item in picked.expired:
            self.replies.expire(item.work)
        return Batch(model, picked.batch)

    def _is_full(self, model: Model) -> bool:
        return model.waiting.tokens >= model.quantum_tokens or len(model.waiting) >= model.max_items

    def _may_lead(self, model: Model) -> bool:
        """Whether a batch may be sent ahead of the end of the running one now; if not, wake up when it may."""
        flight = self._flight
        starts_at = flight.full_lead_starts_at if self._is_full(model) else flight.lead_starts_at
        if self._loop.time() > starts_at - TIMER_S:
            return True
        self._alarm.set(starts_at)
        return False

    # Run

    def _launch(self, batch: Batch) -> None:
        now = self._loop.time()
        batch = self._without_expired(batch, now)
        if not batch.items:
            return
        try:
            features = batch.model.adapter.collate([item.prepared for item in batch.items])
        except Exception as error:
            logger.exception("Collating a batch of %s failed", batch.model.id)
            self._isolate(batch, error)
            return
        self._flight.add(batch, now)
        self._taps.look_again()
        self._has_taken_last = False
        self._alarm.clear()
        self.num_batches += 1
        self.num_items += len(batch.items)
        self._link.run(batch.model.id, features).add_done_callback(partial(self._landed, batch))

    def _without_expired(self, batch: Batch, now: float) -> Batch:
        if all(item.deadline > now for item in batch.items):
            return batch
        for item in batch.items:
            if item.deadline <= now:
                self.replies.expire(item.work)
        return Batch(batch.model, [item for item in batch.items if item.deadline > now])

    # Reply

    def _landed(self, batch: Batch, future: asyncio.Future[tuple[Arrays, float]]) -> None:
        if batch not in self._flight:  # the host died, `host_exited` has dealt with it
            future.exception()
            return
        self._flight.remove(batch, self._loop.time())
        self._has_taken_last &= bool(self._flight)
        self._alarm.clear()
        error = future.exception()
        if isinstance(error, Exception):
            self._isolate(batch, error)
        self.pump()  # the device first, the replies while it runs
        if error is None:
            arrays, seconds = future.result()
            self._measures.ran(batch, seconds)
            for item in batch.items:
                if item.runs_alone:
                    self._dead_letters.acquit(item)
            if batch.model.observe(batch.num_tokens, seconds):
                self._on_change()
            self.replies.collect(batch, arrays, seconds)

    # When things go wrong

    def _isolate(self, batch: Batch, error: Exception) -> None:
        """A batch failed: run its halves, so that in the end only the culprit's own chunk fails."""
        if isinstance(error, MemoryError):
            self._halve_quantum(batch)
        if len(batch.items) > 1:
            self._again.extend(batch.halves())
        elif isinstance(error, MemoryError):
            text = f"an item of {batch.num_tokens} tokens does not fit into the device's memory now"
            self.replies.refuse(batch.items[0].work, NotReady(text, retry_after_s=1.0))
        elif isinstance(error, ShoalError):
            self.replies.refuse(batch.items[0].work, error)
        else:
            self.replies.refuse(batch.items[0].work, InternalError(f"{type(error).__name__}: {error}"))

    def _halve_quantum(self, batch: Batch) -> None:
        self._measures.memory_errors.value += 1
        if batch.model.halve_tokens(batch.num_tokens):
            quantum_tokens = batch.model.quantum_tokens
            logger.warning("%s: %d tokens do not fit, at most %d now", batch.model.id, batch.num_tokens, quantum_tokens)
            self._on_change()
            self._loop.call_later(MEMORY_RETRY_S, self._double_quantum, batch.model)

    def _double_quantum(self, model: Model) -> None:
        if model.double_tokens():
            self._on_change()

    def host_exited(self) -> None:
        """Take back what was on its way. Only the batch that ran is suspect: its items run alone from now on."""
        self._is_paused = True
        lost = self._flight.clear(self._loop.time())
        if lost:
            self._dead_letters.crashed(lost[0])
        for batch in lost:
            for item in batch.items:
                batch.model.waiting.add(item, item.start)
            self._taps.hold(batch.model)

    def resume(self) -> None:
        """The host is back with its sessions."""
        self._is_paused = False
        self.pump()

    async def drop(self, model: Model, error: ShoalError) -> None:
        """Serve a model no more, and refuse what waits for it."""
        del self.models[model.id]
        await self._intake.close(model)
        for work in self.replies.of(model):
            self.replies.refuse(work, error)
        self._taps.drop(model)

    async def release(self, model: Model, limit_s: float) -> None:
        """Serve a model no more: finish what is on loan within the limit, and hand the rest back."""
        await self._intake.close(model)
        await self._settle(model, limit_s)
        if self.models.get(model.id) is model:
            del self.models[model.id]
        self._taps.drop(model)

    async def _settle(self, model: Model | None, limit_s: float) -> bool:
        """Wait for what is open, then hand back what is left; returns whether nothing was."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.replies.settled(model), limit_s)
        left = self.replies.of(model)
        for work in left:
            self.replies.hand_back(work)
        if left:
            logger.warning("%d chunks are not done after %g s and handed back", len(left), limit_s)
        return not left

    def _keep_leases(self) -> None:
        """Three times a lease: renew what is open, and look whether the host hangs or somebody forgot to wake us."""
        now = self._loop.time()
        if self._flight and now > self._flight.ends_at + HANG_S:
            logger.error("A batch takes over %g s longer than expected; killing the runtime host", HANG_S)
            self._link.kill()
        self.replies.keep(now)
        self._taps.look_round()
        self._pump_soon()
        self._keeper = self._loop.call_later(self._keep_alive_s, self._keep_leases)

    async def close(self, drain_s: float) -> bool:
        """Pull no more, finish what is on loan within `drain_s`, hand the rest back; returns whether all is done."""
        for model in self.models.values():
            await self._intake.close(model)
        is_done = await self._settle(None, drain_s)
        await self._dead_letters.close()
        self._alarm.clear()
        if self._keeper is not None:
            self._keeper.cancel()
        return is_done
