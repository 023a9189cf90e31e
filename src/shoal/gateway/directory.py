"""What the workers of a pool announced: models that they can serve, models loaded, how large a batch they run.

It hears announcements and forgets workers that fell silent. It must not know requests or HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from shoal.catalog.names import near_names
from shoal.errors import NotReady, ShoalError, UnknownModel
from shoal.types import ErrorBody, LoadedModel, ModelCard, WorkerStatus

__all__ = ["Directory", "Served"]

DEFAULT_QUANTUM_TOKENS = 2048
"""Assumed until a worker has measured its own."""

_ANNOUNCED_WITHIN_S = 5.0
"""So long a request waits for a worker to announce itself: when the gateway is new, or the worker restarts."""

_LOST_OF_LATE_S = 30.0
"""So long a model counts as on its way back after its last worker has gone."""

_MISSED_INTERVALS = 3
_DEFAULT_LOAD_S = 5.0
_MAX_SHOWN_NAMES = 20


class Served(msgspec.Struct, frozen=True):
    """A model that this pool serves, over all its workers.

    Attributes:
        card: what may be said about it.
        quantum_tokens: the smallest quantum measured by a worker that has it ready.
        is_ready: whether a worker has it loaded.
        is_loading: whether one is at it.
        load_s: how long loading takes as far as is known, else 0.
        failure: why every worker that tried could not load it.
        workers: ids of those that could serve it.
        loaded: its state in each worker that has it ready: runtime, device, precision, costs.
    """

    card: ModelCard
    quantum_tokens: int
    is_ready: bool
    is_loading: bool
    load_s: float
    failure: ErrorBody | None
    workers: frozenset[str]
    loaded: tuple[LoadedModel, ...] = ()


class Directory:
    """The workers alive and the models they serve, by id and alias."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._workers: dict[str, tuple[WorkerStatus, float]] = {}
        self._by_name: dict[str, Served] = {}
        self._lost_at: dict[str, float] = {}
        self._loading_since: dict[str, float] = {}
        self._news = asyncio.Event()
        self._on_change: list[Callable[[], None]] = []
        self.ready = asyncio.Event()

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back whenever models or their states have changed."""
        self._on_change.append(callback)

    def hear(self, status: WorkerStatus) -> None:
        """Take in an announcement."""
        known = self._workers.get(status.worker_id)
        if status.leaving:
            self._workers.pop(status.worker_id, None)
        else:
            self._workers[status.worker_id] = (status, self._clock())
        is_news = known is None or status.leaving or (known[0].cards, known[0].models) != (status.cards, status.models)
        if is_news:
            self._rebuild()

    def expire(self) -> None:
        """Forget workers that missed three of their intervals."""
        now = self._clock()
        silent = [
            worker_id
            for worker_id, (status, heard_at) in self._workers.items()
            if now - heard_at > _MISSED_INTERVALS * status.interval_s
        ]
        for worker_id in silent:
            del self._workers[worker_id]
        if silent:
            self._rebuild()

    def excuse_silence(self) -> None:
        """Count no silence up to now: nobody could be heard."""
        now = self._clock()
        self._workers = {worker_id: (status, now) for worker_id, (status, _) in self._workers.items()}

    def find(self, name: str) -> Served:
        """The model that a request names, by id or alias.

        Raises:
            UnknownModel: no worker serves it; the hint holds near names.
            NotReady: there is no worker at all, or its last one has gone of late.
        """
        served = self._by_name.get(name)
        if served is None:
            raise self._no_model(name)
        return served

    async def find_soon(self, name: str, limit_s: float) -> Served:
        """As `find`, but where it would say `NotReady`, wait for an announcement: up to `limit_s`, and 5 s at most."""
        if name not in self._by_name:
            with contextlib.suppress(TimeoutError):  # `find` says what is missing
                async with asyncio.timeout(min(limit_s, _ANNOUNCED_WITHIN_S)):
                    while name not in self._by_name and self._may_come(name):
                        await self._news.wait()
        return self.find(name)

    def get(self, model: str) -> Served | None:
        """The model of this id, if it is served."""
        return self._by_name.get(model)

    @property
    def models(self) -> list[Served]:
        """All models, by id."""
        return [served for name, served in sorted(self._by_name.items()) if name == served.card.id]

    @property
    def num_workers(self) -> int:
        return len(self._workers)

    @property
    def is_ready(self) -> bool:
        """Whether a worker is alive that has a model ready, or could load one and is not busy loading."""
        return self.ready.is_set()

    def shown_names(self) -> str:
        """The ids served, for a message."""
        names = [served.card.id for served in self.models]
        more = f", and {len(names) - _MAX_SHOWN_NAMES} more" if len(names) > _MAX_SHOWN_NAMES else ""
        return ", ".join(names[:_MAX_SHOWN_NAMES]) + more

    def failure(self, model: str) -> ShoalError | None:
        """Why a model cannot be loaded; None unless every worker that serves it has tried in vain of late."""
        served = self.get(model)
        return None if served is None or served.failure is None else ShoalError.from_body(served.failure)

    def not_loaded(self, model: str) -> NotReady | None:
        """The error for a request that waited in vain for a model to load; None when the model is ready."""
        served = self._by_name.get(model)
        if served is None:
            return NotReady(f"No worker that serves {model} is alive.", retry_after_s=_DEFAULT_LOAD_S)
        if served.is_ready:
            return None
        estimate_s = served.load_s or _DEFAULT_LOAD_S
        waited_s = self._clock() - self._loading_since.get(model, self._clock())
        return NotReady(f"The model {model} is still loading.", retry_after_s=max(1.0, estimate_s - waited_s))

    def _may_come(self, name: str) -> bool:
        lost_at = self._lost_at.get(name)
        return not self._by_name or (lost_at is not None and self._clock() - lost_at < _LOST_OF_LATE_S)

    def _no_model(self, name: str) -> ShoalError:
        if self._may_come(name):
            what = f"that serves {name[:200]} is alive" if self._by_name else "has announced itself yet"
            return NotReady(f"No worker {what}.", retry_after_s=2.0)
        near = near_names(name[:200], list(self._by_name))
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Served here: {self.shown_names()}."
        return UnknownModel(f"The model {name[:200]!r} is not served here.", param="model", hint=hint)

    def _rebuild(self) -> None:
        by_id: dict[str, list[tuple[WorkerStatus, ModelCard]]] = {}
        for status, _ in self._workers.values():
            for card in status.cards:
                by_id.setdefault(card.id, []).append((status, card))
        models = {model: _served(model, offers) for model, offers in by_id.items()}
        aliases = {alias: served for served in models.values() for alias in served.card.aliases}
        before, self._by_name = self._by_name, {**aliases, **models}
        now = self._clock()
        lost_at = self._lost_at | dict.fromkeys(before.keys() - self._by_name.keys(), now)
        self._lost_at = {
            name: at for name, at in lost_at.items() if name not in self._by_name and now - at < _LOST_OF_LATE_S
        }
        self._loading_since = {
            model: self._loading_since.get(model, now) for model, served in models.items() if served.is_loading
        }
        self._set_ready(any(_can_serve(status) for status, _ in self._workers.values()))
        news, self._news = self._news, asyncio.Event()
        news.set()
        for callback in self._on_change:
            callback()

    def _set_ready(self, is_ready: bool) -> None:
        if is_ready:
            self.ready.set()
        else:
            self.ready.clear()


def _state(status: WorkerStatus, model: str) -> LoadedModel | None:
    return next((loaded for loaded in status.models if loaded.id == model), None)


def _served(model: str, offers: list[tuple[WorkerStatus, ModelCard]]) -> Served:
    states = [_state(status, model) for status, _ in offers]
    loaded = [state for state in states if state is not None]
    ready = [state for state in loaded if state.state == "ready"]
    failed = [state for state in loaded if state.state == "failed"]
    quanta = [state.quantum_tokens for state in ready if state.quantum_tokens > 0]
    return Served(
        card=offers[0][1],
        quantum_tokens=min(quanta, default=DEFAULT_QUANTUM_TOKENS),
        is_ready=bool(ready),
        is_loading=any(state.state == "loading" for state in loaded),
        load_s=max((state.load_s for state in loaded), default=0.0),
        failure=failed[0].error if failed and len(failed) == len(offers) else None,
        workers=frozenset(status.worker_id for status, _ in offers),
        loaded=tuple(ready),
    )


def _can_serve(status: WorkerStatus) -> bool:
    states = {loaded.id: loaded.state for loaded in status.models}
    if "ready" in states.values():
        return True
    return "loading" not in states.values() and any(states.get(card.id) != "failed" for card in status.cards)
