"""A worker: one runtime host, its sidecar, the models they hold, and what is announced about them."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import uuid
from collections.abc import Sequence

from shoal.catalog.spec import ModelSpec
from shoal.queue.base import Queue
from shoal.runtimes.link import HostExited, HostLink
from shoal.runtimes.survey import choose_runtime
from shoal.settings import QueueSettings, WorkerSettings
from shoal.telemetry.metrics import Metrics
from shoal.worker.announcer import Announcer
from shoal.worker.cost import START_S, THOROUGHLY_S
from shoal.worker.loading import Loading
from shoal.worker.measures import Measures
from shoal.worker.residency import Residency
from shoal.worker.sidecar import Sidecar
from shoal.worker.sources import Loader, Resolve, as_source
from shoal.worker.tokenizers import Tokenizers

__all__ = ["Worker"]

logger = logging.getLogger(__name__)


class Worker:
    """Serves models from a queue.

    Must be made, started and drained on one event loop.

    Args:
        specs: the models that it may serve: specs, loaders (callables with a `card`), or plain callables, which are
            resolved at `start`.
        preload: ids or aliases of models to load at once, pinned ones first, as far as they fit into the memory budget
            together; others load on demand.
        metrics: where this worker's are declared; None keeps them to itself.
    """

    def __init__(
        self,
        queue: Queue,
        specs: Sequence[ModelSpec | Loader | Resolve],
        settings: WorkerSettings,
        queue_settings: QueueSettings,
        *,
        worker_id: str | None = None,
        preload: Sequence[str] = (),
        metrics: Metrics | None = None,
    ) -> None:
        settings = dataclasses.replace(settings, runtime=choose_runtime(settings.runtime))
        self.id = worker_id or uuid.uuid4().hex[:12]
        self._queue = queue
        self._given = specs
        self._preload = preload
        self._drain_s = settings.drain_s
        self._pin = [name.strip() for name in settings.pin.split(",") if name.strip()]
        self._threads = Tokenizers(max(1, settings.tokenizer_threads))
        self.measures = Measures(metrics or Metrics())
        self._link = HostLink(f"{settings.runtime} host of {self.id}", self._on_host_exit)
        self.sidecar = Sidecar(
            queue, self._link, self._threads, settings, queue_settings, self.id, self._announce, self.measures
        )
        loading = Loading(self._link, settings, self._threads)
        self.residency = Residency(loading, self.sidecar, settings, self._announce, self.measures)
        self._announcer = Announcer(queue, queue_settings.pool, self.id, self.residency, self.sidecar)
        self._watch()
        self._loads: list[asyncio.Task[None]] = []
        self._reviving: asyncio.Task[None] | None = None
        self._is_serving = False
        self._is_stopping = False

    @property
    def is_ready(self) -> bool:
        """Whether all that was to be preloaded serves, the host runs and the queue can be reached."""
        has_loaded = self._is_serving and all(load.done() and not load.exception() for load in self._loads)
        return has_loaded and self._link.is_running and self._queue.is_connected

    @property
    def host_pid(self) -> int | None:
        """Process id of the runtime host."""
        return self._link.pid

    @property
    def num_tokenizers(self) -> int:
        """Threads that may tokenise at the same time."""
        return self._threads.num_threads

    async def start(self) -> None:
        """Start the host, announce the models and begin to load those of `preload`; `wait_ready` waits for them.

        Raises:
            UnknownModel: a name in `preload`, or one that is to be pinned, stands for nothing.
            ModelRefused: a model given as a plain callable is not understood.
        """
        for given in self._given:
            self.residency.add(await as_source(given))
        self.measures.know(card.id for card in self.residency.cards)
        pinned = self.residency.pin(self._pin)
        preloaded = [self.residency.find(name) for name in self._preload]
        names = sorted(dict.fromkeys(preloaded), key=lambda name: name not in pinned)
        await self._link.start()
        measuring_s = min(THOROUGHLY_S, START_S / max(1, len(names)))
        self._loads = [self.residency.start_load(name, measuring_s, may_evict=False) for name in names]
        self._is_serving = True
        await self._announcer.start()

    async def wait_ready(self) -> None:
        """Wait for the models of `preload`.

        Raises:
            ShoalError: the first one that failed to load.
        """
        await asyncio.gather(*self._loads)

    async def drain(self) -> None:
        """Leave: pull no more, finish what runs within `drain_s`, hand back the rest, stop the host."""
        if not self._is_serving:
            return
        self._is_serving = False
        await self._announcer.leave()
        await self.residency.cancel()
        is_done = await self.sidecar.close(self._drain_s)
        self._is_stopping = True
        if not is_done:
            self._link.kill()  # it is at a batch that nobody waits for any more
        if self._reviving is not None:
            self._reviving.cancel()
            await asyncio.gather(self._reviving, return_exceptions=True)
        await self._link.stop()
        self._threads.shutdown(wait=False)

    def _watch(self) -> None:
        models = self.sidecar.models
        self.measures.watch(
            models.values(),
            lambda: self.residency.states,
            lambda: float(self._link.device_tokens),
            lambda: float(self.residency.room.used_bytes),
            lambda: float(self.residency.room.budget_bytes),
        )

    def _announce(self) -> None:
        if self._is_serving:
            self._announcer.announce()

    def _on_host_exit(self) -> None:
        if self._is_stopping:
            return
        logger.error("The runtime host died; starting another one")
        self.measures.host_restarts.value += 1
        self.residency.host_exited()
        self.sidecar.host_exited()
        if self._reviving is None or self._reviving.done():
            self._reviving = asyncio.create_task(self._revive())

    async def _revive(self) -> None:
        is_up = False
        while not is_up:
            try:
                await self._link.restart()
                await self.residency.reload()
                is_up = self._link.is_running
            except (HostExited, OSError) as error:
                logger.error("The new runtime host failed: %s", error)
        self.sidecar.resume()
        self._announce()
