"""Which models this worker could serve, which are loading, ready or failed; and the loading itself.

Loading never blocks the event loop: files are read and the tokenizer is opened in threads, the weights are loaded in
the runtime host, and the cost model is measured through it. A model that failed is not tried again for 30 s.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

import msgspec

from shoal.adapters import open_adapter
from shoal.adapters.base import Adapter
from shoal.catalog.spec import ModelSpec
from shoal.errors import InternalError, ShoalError, UnknownModel
from shoal.runtimes.base import RuntimeOptions
from shoal.runtimes.link import HostExited, HostLink
from shoal.settings import WorkerSettings
from shoal.types import EmbedOptions, LoadedModel, ModelCard
from shoal.worker.cost import CostModel, measure
from shoal.worker.sidecar import Sidecar
from shoal.worker.work import Model

__all__ = ["Loader", "Residency", "Source", "as_source"]

logger = logging.getLogger(__name__)

COOL_DOWN_S = 30.0
EXPECTED_LOAD_S = 5.0
MEASURED_ITEM_TOKENS = 128

Resolve = Callable[[], ModelSpec | Awaitable[ModelSpec]]


@runtime_checkable
class Loader(Protocol):
    """A callable that finds a model's spec when it is wanted, and knows its card before."""

    card: ModelCard

    def __call__(self) -> ModelSpec | Awaitable[ModelSpec]: ...


class Source(msgspec.Struct, frozen=True):
    """A model that could be loaded: what may be said about it now, and how to get its spec."""

    card: ModelCard
    resolve: Resolve


async def as_source(given: ModelSpec | Loader | Resolve) -> Source:
    """A spec is its own source; a callable without a card is resolved now."""
    if isinstance(given, Loader):
        return Source(given.card, given)
    spec = given if isinstance(given, ModelSpec) else await _resolve(given)
    return Source(spec.card, lambda: spec)


async def _resolve(resolve: Resolve) -> ModelSpec:
    spec = resolve() if inspect.iscoroutinefunction(resolve) else await asyncio.to_thread(resolve)
    return spec if isinstance(spec, ModelSpec) else await spec


class Residency:
    """The models of one device.

    Args:
        on_change: called whenever `states` has changed.
    """

    def __init__(
        self, link: HostLink, sidecar: Sidecar, settings: WorkerSettings, on_change: Callable[[], None]
    ) -> None:
        self._link = link
        self._sidecar = sidecar
        self._settings = settings
        self._on_change = on_change
        self._options = _runtime_options(settings)
        self._sources: dict[str, Source] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[str, LoadedModel] = {}
        self._last_load_s = EXPECTED_LOAD_S

    @property
    def cards(self) -> tuple[ModelCard, ...]:
        """All models that could be served."""
        return tuple(source.card for source in self._sources.values())

    @property
    def states(self) -> tuple[LoadedModel, ...]:
        """Models that are ready, loading (with the seconds it should take) or failed a short while ago."""
        ready = [model.state for model in self._sidecar.models.values()]
        loading = [LoadedModel(id, "loading", load_s=self._last_load_s) for id in self._loading]
        return (*ready, *loading, *self._failed.values())

    def add(self, source: Source) -> None:
        """Announce a model as one that could be loaded."""
        self._sources[source.card.id] = source

    def find(self, name: str) -> str:
        """The id that an id or alias stands for.

        Raises:
            UnknownModel: nothing here has that name.
        """
        for card in self.cards:
            if name == card.id or name in card.aliases:
                return card.id
        raise UnknownModel(f"no model {name!r} here", hint=f"There are: {', '.join(sorted(self._sources))}.")

    def can_load(self, model_id: str) -> bool:
        """Whether loading it now would make sense."""
        is_known = model_id in self._sidecar.models or model_id in self._loading or model_id in self._failed
        return model_id in self._sources and not is_known

    def start_load(self, model_id: str) -> asyncio.Task[None]:
        """Load a model in the background; the task's exception is the error that is announced."""
        task = self._loading[model_id] = asyncio.create_task(self._load(self._sources[model_id]))
        task.add_done_callback(lambda task: task.cancelled() or task.exception())  # seen: it is announced
        self._on_change()
        return task

    async def reload(self) -> None:
        """Load again, into a new host, what was ready in the old one.

        Raises:
            HostExited: the new host died as well.
        """
        for model in list(self._sidecar.models.values()):
            try:
                await self._link.load(model.id, model.spec, self._settings.runtime, self._options)
            except HostExited:
                raise
            except Exception as error:
                await self._sidecar.drop(model, self._note_failure(model.id, error))

    async def cancel(self) -> None:
        """Stop all loads."""
        tasks = list(self._loading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _load(self, source: Source) -> None:
        model_id, started = source.card.id, time.monotonic()
        try:
            model = await self._make(source, started)
            await self._sidecar.open(model)
        except Exception as error:
            raise self._note_failure(model_id, error) from error
        finally:
            del self._loading[model_id]
            self._on_change()
        self._last_load_s = model.load_s
        cost = f"a {model.cost.a_s * 1e3:.2f} ms, c {model.cost.c_s * 1e6:.2f} us, quantum {model.quantum_tokens}"
        logger.info("%s: ready after %.2f s, %s", model_id, model.load_s, cost)

    async def _make(self, source: Source, started: float) -> Model:
        spec = await _resolve(source.resolve)
        adapter, facts = await asyncio.gather(
            asyncio.to_thread(open_adapter, spec, truncates=self._settings.truncate),
            self._link.load(source.card.id, spec, self._settings.runtime, self._options),
        )
        cost, max_tokens = await self._measure(spec, adapter)
        objective_s = self._settings.latency_objective_ms / 1000
        max_items, load_s = self._settings.max_batch_items, time.monotonic() - started
        return Model(spec, adapter, facts, cost, objective_s, max_tokens, max_items, load_s)

    async def _measure(self, spec: ModelSpec, adapter: Adapter) -> tuple[CostModel, int]:
        async def run(num_tokens: int) -> tuple[int, float]:
            item_tokens = min(num_tokens, MEASURED_ITEM_TOKENS, spec.tokenization.max_length)
            num_items = min(max(1, num_tokens // item_tokens), self._settings.max_batch_items)
            items = adapter.prepare(["a " * (item_tokens - 2)], EmbedOptions(overflow="truncate")) * num_items
            _, seconds = await self._link.run(spec.id, adapter.collate(items))
            return sum(item.cost for item in items), seconds

        return await measure(run, self._settings.max_batch_tokens)

    def _note_failure(self, model_id: str, error: Exception) -> ShoalError:
        """Announce a failed load for the time of the cool-down; returns what is announced."""
        if isinstance(error, ShoalError):
            shown = error
            logger.warning("%s: does not load: %s", model_id, error)
        else:
            shown = InternalError(f"{model_id} does not load: {type(error).__name__}: {error}")
            logger.warning("%s: does not load", model_id, exc_info=error)
        self._failed[model_id] = LoadedModel(model_id, "failed", error=shown.to_body())
        asyncio.get_running_loop().call_later(COOL_DOWN_S, self._forgive, model_id)
        return shown

    def _forgive(self, model_id: str) -> None:
        if self._failed.pop(model_id, None):
            self._on_change()


def _runtime_options(settings: WorkerSettings) -> RuntimeOptions:
    """What each load is given.

    Raises:
        ValueError: `runtime_options` is not a JSON object.
    """
    try:
        extra = msgspec.json.decode(settings.runtime_options or "{}", type=dict)
    except msgspec.MsgspecError as error:
        raise ValueError(
            f"runtime_options is {settings.runtime_options!r}; it must be a JSON object: {error}"
        ) from None
    return RuntimeOptions(settings.precision, settings.threads, extra)
