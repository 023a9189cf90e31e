"""Makes a model ready to serve: tokenizer in a thread, weights in the runtime host, costs measured through it.

Which model is loaded when, and what becomes of one that fails, is not known here.
"""

from __future__ import annotations

import asyncio
import time

from shoal.adapters import open_adapter
from shoal.adapters.base import Adapter
from shoal.catalog.spec import ModelSpec
from shoal.runtimes.base import Footprint, SessionFacts
from shoal.runtimes.link import HostLink
from shoal.settings import WorkerSettings
from shoal.types import EmbedOptions
from shoal.worker.cost import CostModel, measure
from shoal.worker.tokenizers import Tokenizers
from shoal.worker.tuned import Choice, choose, drift, runtime_options
from shoal.worker.work import Model

__all__ = ["Loading"]

MEASURED_ITEM_TOKENS = 128

LOAD_LIMIT_S = 600.0
"""A load that takes longer hangs: only the end of the runtime host ends it."""


class Loading:
    """Loads models into one runtime host, one at a time: a load beside a measurement would spoil it.

    Raises:
        ValueError: `runtime_options` is not a JSON object.
    """

    def __init__(self, link: HostLink, settings: WorkerSettings, tokenizers: Tokenizers) -> None:
        self._link = link
        self._tokenizers = tokenizers
        self._settings = settings
        runtime_options(settings)  # wrong ones are told at the start
        self._choices: dict[str, Choice] = {}
        self._one_at_a_time = asyncio.Lock()
        self._costs: dict[str, tuple[CostModel, int]] = {}

    async def estimate(self, spec: ModelSpec) -> Footprint:
        """What memory a model would take; with what it is loaded is chosen here, too."""
        found = await self._link.estimate(spec, self._settings.runtime, runtime_options(self._settings))
        choice = self._choices[spec.id] = choose(self._settings, spec, found)
        if choice.match is None:
            return found
        return await self._link.estimate(spec, self._settings.runtime, choice.options)

    async def load(self, spec: ModelSpec, measuring_s: float) -> Model:
        """Load a model and measure its costs for so many seconds, unless they are known from an earlier time.

        Raises:
            HostExited: the runtime host died meanwhile.
            MemoryError: it does not fit into memory.
            TimeoutError: it hung, and the host was killed.
            ShoalError: the runtime or the adapter refuses it.
        """
        async with self._one_at_a_time:
            started = time.monotonic()
            adapter, facts = await asyncio.gather(
                asyncio.to_thread(open_adapter, spec, truncates=self._settings.truncate), self.load_session(spec)
            )
            reload_s = time.monotonic() - started
            if spec.id not in self._costs:
                self._costs[spec.id] = await self._measure(spec, adapter, measuring_s)
            cost, max_tokens = self._costs[spec.id]
            choice = self._choices[spec.id]
            self._tokenizers.widen(choice.tokenizer_threads)
            load_s, max_items = time.monotonic() - started, self._settings.max_batch_items
            model = Model(spec, adapter, facts, cost, choice.objective_s, max_tokens, max_items, load_s)
            model.profile, model.drift = choice.profile, drift(choice, cost)
            model.reload_s = reload_s
            return model

    async def load_session(self, spec: ModelSpec) -> SessionFacts:
        """Load the weights alone."""
        loaded = self._link.load(spec.id, spec, self._settings.runtime, self._choices[spec.id].options)
        try:
            return await asyncio.wait_for(loaded, LOAD_LIMIT_S)
        except TimeoutError:
            self._link.kill()
            raise

    async def unload(self, model_id: str) -> None:
        """Free a model's memory; does nothing if it is not loaded.

        Raises:
            HostExited: the host is dead, and its memory free.
        """
        await self._link.unload(model_id)

    def remember(self, model: Model) -> None:
        """Take the costs that a model has now for those that it will have when it is loaded again."""
        self._costs[model.id] = (model.cost, model.most_tokens)

    async def _measure(self, spec: ModelSpec, adapter: Adapter, limit_s: float) -> tuple[CostModel, int]:
        async def run(num_tokens: int) -> tuple[int, float]:
            item_tokens = min(num_tokens, MEASURED_ITEM_TOKENS, spec.tokenization.max_length)
            num_items = min(max(1, num_tokens // item_tokens), self._settings.max_batch_items)
            items = adapter.prepare(["a " * (item_tokens - 2)], EmbedOptions(overflow="truncate")) * num_items
            _, seconds = await self._link.run(spec.id, adapter.collate(items))
            return sum(item.cost for item in items), seconds

        return await measure(run, self._settings.max_batch_tokens, limit_s)
