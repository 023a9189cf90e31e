"""Which models this worker could serve, which are loading, ready or failed; who comes and who goes.

Models share a memory budget. One that is wanted waits in line for room (`room`), others are evicted for it (`budget`),
it is loaded (`loading`) and served. What fails to load is not tried again for a while (`failures`) and costs the others
nothing. Nothing here blocks the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from shoal.catalog.spec import ModelSpec
from shoal.errors import ShoalError, UnknownModel
from shoal.runtimes.link import HostExited
from shoal.settings import WorkerSettings, parse_size
from shoal.types import LoadedModel, ModelCard
from shoal.worker.budget import Resident
from shoal.worker.cost import BRIEFLY_S
from shoal.worker.failures import Failures
from shoal.worker.loading import Loading
from shoal.worker.measures import Measures
from shoal.worker.memory import budget_bytes
from shoal.worker.room import NoRoom, Room
from shoal.worker.sidecar import Sidecar
from shoal.worker.sources import Source, resolve_spec
from shoal.worker.work import Model

__all__ = ["Residency"]

logger = logging.getLogger(__name__)

EXPECTED_LOAD_S = 5.0

LOAD_TRIES = 2
"""A host that dies while a model loads need not have died of it."""


class Residency:
    """The models of one device.

    Args:
        on_change: called whenever `states` has changed.

    Attributes:
        room: who holds how much memory.
    """

    def __init__(
        self,
        loading: Loading,
        sidecar: Sidecar,
        settings: WorkerSettings,
        on_change: Callable[[], None],
        measures: Measures,
    ) -> None:
        self._loading = loading
        self._sidecar = sidecar
        self._settings = settings
        self._on_change = on_change
        self._measures = measures
        self._loop = asyncio.get_running_loop()
        self._sources: dict[str, Source] = {}
        self._pinned: set[str] = set()
        self._coming: dict[str, asyncio.Task[None]] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._failures = Failures(self._loop.time)
        self._sizes: dict[str, int] = {}
        self._last_load_s = EXPECTED_LOAD_S
        self._expected_s: dict[str, float] = {}
        self._host_is_up = asyncio.Event()
        self._host_is_up.set()
        self._num_deaths: dict[str, int] = {}
        is_strict = parse_size(settings.memory_budget) > 0
        self.room = Room(
            budget_bytes(settings.memory_budget), is_strict, self._residents, self._pinned_bytes, self._evict
        )

    @property
    def cards(self) -> tuple[ModelCard, ...]:
        """All models that could be served."""
        return tuple(source.card for source in self._sources.values())

    @property
    def states(self) -> tuple[LoadedModel, ...]:
        """Models that are ready, loading or waiting for room (with the seconds it should take), or failed of late.

        While the host is down none is ready: all are about to be loaded again.
        """
        serving = self._serving()
        if self._host_is_up.is_set():
            ready = [model.state for model in serving]
        else:
            ready = [LoadedModel(model.id, "loading", load_s=self._last_load_s) for model in serving]
        loading = [LoadedModel(id, "loading", load_s=self._expected_s[id]) for id in self._coming]
        return (*ready, *loading, *self._failures.states)

    @property
    def ready_ids(self) -> set[str]:
        """Models that serve and need not leave."""
        return {model.id for model in self._serving()}

    def add(self, source: Source) -> None:
        """Announce a model as one that could be loaded."""
        self._sources[source.card.id] = source

    def pin(self, names: Iterable[str]) -> list[str]:
        """Never evict these; returns their ids.

        Raises:
            UnknownModel: a name stands for nothing here.
        """
        ids = [self.find(name) for name in names]
        self._pinned.update(ids)
        return ids

    def find(self, name: str) -> str:
        """The id that an id or alias stands for.

        Raises:
            UnknownModel: nothing here has that name.
        """
        if name in self._sources:
            return name
        for card in self.cards:
            if name in card.aliases:
                return card.id
        raise UnknownModel(f"no model {name!r} here", hint=f"There are: {', '.join(sorted(self._sources))}.")

    def can_load(self, model_id: str) -> bool:
        """Whether loading it now would make sense, and room could be made for it."""
        is_ready = model_id in self._sidecar.models and model_id not in self._leaving
        if model_id not in self._sources or is_ready or model_id in self._coming or model_id in self._failures:
            return False
        return self.room.may_ever_hold(self._size(model_id))

    def bid(self, model_id: str) -> int:
        """Bytes that would stay free with this model and all that wait for room; below zero, what had to be evicted."""
        waiting = sum(self._size(other) for other in self._coming if other not in self.room.held)
        return self.room.budget_bytes - self.room.used_bytes - waiting - self._size(model_id)

    def start_load(
        self, model_id: str, measuring_s: float = BRIEFLY_S, *, may_evict: bool = True
    ) -> asyncio.Task[None]:
        """Load a model in the background, once there is room; the task's exception is the error that is announced.

        Args:
            measuring_s: seconds of the device that measuring its costs may take.
            may_evict: if others may leave for it. Otherwise it is left to those who ask for it, should it not fit.
        """
        self._expected_s[model_id] = self._last_load_s
        coming = self._come(self._sources[model_id], measuring_s, may_evict=may_evict)
        task = self._coming[model_id] = asyncio.create_task(coming)
        task.add_done_callback(lambda task: task.cancelled() or task.exception())  # seen: it is announced
        self._on_change()
        return task

    def host_exited(self) -> None:
        """The sessions are gone; loads wait until `reload` is through."""
        self._host_is_up.clear()
        self._on_change()

    async def reload(self) -> None:
        """Load again, into a new host, what was ready in the old one. One that kills it again is given up.

        Raises:
            HostExited: the new host died as well.
        """
        for model in list(self._sidecar.models.values()):
            try:
                await self._loading.load_session(model.spec)
                if self._sidecar.models.get(model.id) is not model:  # it has left meanwhile
                    await self._loading.unload(model.id)
            except HostExited as error:
                self._num_deaths[model.id] = self._num_deaths.get(model.id, 0) + 1
                if self._num_deaths[model.id] >= LOAD_TRIES:
                    await self._drop(model, error)
                raise
            except Exception as error:
                await self._drop(model, error)
        self._num_deaths.clear()
        self._host_is_up.set()

    async def cancel(self) -> None:
        """Stop all loads and all leaving."""
        tasks = [*self._coming.values(), *self._leaving.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Coming

    async def _come(self, source: Source, measuring_s: float, *, may_evict: bool) -> None:
        model_id = source.card.id
        try:
            if model_id in self._leaving:
                await asyncio.wait([self._leaving[model_id]])
            model = await self._load(await resolve_spec(source.resolve), measuring_s, may_evict=may_evict)
        except NoRoom:
            logger.info("%s: no room for it now, it is loaded when it is asked for", model_id)
            return
        except Exception as error:
            raise self._note_failure(model_id, error) from error
        finally:
            del self._coming[model_id], self._expected_s[model_id]
            self.room.look_again()
            self._on_change()
        self._last_load_s = model.load_s
        self._failures.forget(model_id)
        self._measures.loads.value += 1
        self._measures.load_seconds.observe(model.load_s)
        cost = f"a {model.cost.a_s * 1e3:.2f} ms, c {model.cost.c_s * 1e6:.2f} us, quantum {model.quantum_tokens}"
        logger.info("%s: ready after %.2f s, %s", model_id, model.load_s, cost)

    async def _load(self, spec: ModelSpec, measuring_s: float, *, may_evict: bool) -> Model:
        for number in range(1, LOAD_TRIES + 1):
            await self._host_is_up.wait()
            try:
                return await self._load_once(spec, measuring_s, may_evict=may_evict)
            except HostExited:
                if number == LOAD_TRIES:
                    raise
                logger.warning("%s: the runtime host died while it was loading; once more", spec.id)
        raise AssertionError("the last try returns or raises")

    async def _load_once(self, spec: ModelSpec, measuring_s: float, *, may_evict: bool) -> Model:
        async with self.room.line:
            estimate = await self._loading.estimate(spec)
            if not self.room.is_strict and estimate.device_bytes is not None:
                self.room.budget_bytes = budget_bytes("", estimate.device_bytes)
            guess = estimate.weights_bytes + estimate.activation_bytes
            await self.room.take(spec.id, self._sizes.get(spec.id, guess), may_evict=may_evict)
        try:
            model = await self._loading.load(spec, measuring_s)
            self._sizes[spec.id] = model.facts.bytes_in_use + estimate.activation_bytes
            await self.room.correct(spec.id, self._sizes[spec.id])
            model.ready_at = model.used_at = self._loop.time()
            await self._sidecar.open(model)
        except BaseException as error:
            if isinstance(error, Exception):
                await self._unload(spec.id)
            self.room.free(spec.id)
            raise
        return model

    # Leaving

    def _serving(self) -> list[Model]:
        return [model for id, model in self._sidecar.models.items() if id not in self._leaving]

    def _residents(self) -> list[Resident]:
        return [
            Resident(
                model.id,
                self.room.held.get(model.id, 0),
                model.ready_at,
                model.used_at,
                model.reload_s,
                is_busy=model.is_busy,
                is_pinned=model.id in self._pinned,
            )
            for model in self._serving()
        ]

    def _pinned_bytes(self) -> int:
        serving = self._pinned & self._sidecar.models.keys() - self._leaving.keys()
        return sum(self.room.held.get(id, 0) for id in serving)

    async def _evict(self, model_id: str) -> None:
        if model_id not in self._leaving:
            self._leaving[model_id] = asyncio.create_task(self._leave(self._sidecar.models[model_id]))
            self._on_change()
        await asyncio.wait([self._leaving[model_id]])

    async def _leave(self, model: Model) -> None:
        try:
            await self._sidecar.release(model, self._settings.drain_s)
            self._loading.remember(model)
            await self._unload(model.id)
            self._measures.evictions.value += 1
            logger.info("%s: unloaded, its memory is wanted for others", model.id)
        finally:
            del self._leaving[model.id]
            self.room.free(model.id)
            self._on_change()

    async def _unload(self, model_id: str) -> None:
        with contextlib.suppress(HostExited):  # and with it all that it held
            await self._loading.unload(model_id)

    # Failing

    async def _drop(self, model: Model, error: Exception) -> None:
        await self._sidecar.drop(model, self._note_failure(model.id, error))
        self.room.free(model.id)

    def _note_failure(self, model_id: str, error: Exception) -> ShoalError:
        """Announce a failed load for the time of the pause; returns what is announced."""
        said, pause_s = self._failures.note(model_id, error)
        self._measures.load_failures.value += 1
        trace = None if isinstance(error, (ShoalError, HostExited, MemoryError)) else error
        logger.warning("%s: not tried again for %.0f s: %s", model_id, pause_s, said, exc_info=trace)
        self._loop.call_later(pause_s + 0.01, self._forgive)
        return said

    def _forgive(self) -> None:
        if self._failures.forgive():
            self._on_change()

    def _size(self, model_id: str) -> int:
        """What a model takes: as it did before, else as others do."""
        known = sorted(self._sizes.values()) or [0]
        return self._sizes.get(model_id, known[len(known) // 2])
