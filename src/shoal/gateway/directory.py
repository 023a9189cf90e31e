"""What the workers of a pool announced: models that they can serve, models loaded, how large a batch they run.

It hears announcements and forgets workers that fell silent. What all workers say of a model is added up when somebody
asks for that model: a change of one costs the others nothing. It must not know requests or HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from shoal.catalog.names import near_names
from shoal.errors import NotReady, ShoalError, UnknownModel
from shoal.gateway.announced import Announced
from shoal.types import ErrorBody, LoadedModel, ModelCard, WorkerStatus

__all__ = ["Directory", "Served"]

DEFAULT_QUANTUM_TOKENS = 2048
"""Assumed until a worker has measured its own."""

_ANNOUNCED_WITHIN_S = 5.0
"""So long a request waits for a worker to announce itself: when the gateway is new, or the worker restarts."""

_LOST_OF_LATE_S = 30.0
"""So long a model counts as on its way back after its last worker has gone."""

_MISSED_INTERVALS = 3

_ASK_AGAIN_S = 1.0
"""A worker of whose announcements one is missing is asked for the whole no more often."""

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
    """The workers alive and the models they serve, by id and alias.

    Args:
        ask: asks the worker of this id to announce the whole.
    """

    def __init__(self, clock: Callable[[], float], ask: Callable[[str], None]) -> None:
        self._clock = clock
        self._ask = ask
        self._asked_at: dict[str, float] = {}
        self._workers: dict[str, Announced] = {}
        self._offers: dict[str, dict[str, Announced]] = {}
        self._aliases: dict[str, str] = {}
        self._served: dict[str, Served] = {}
        self._lost_at: dict[str, float] = {}
        self._news = asyncio.Event()
        self._on_change: list[Callable[[Collection[str]], None]] = []
        self.ready = asyncio.Event()

    def on_change(self, callback: Callable[[Collection[str]], None]) -> None:
        """Call back with the ids of the models that came, went or changed their state."""
        self._on_change.append(callback)

    def hear(self, status: WorkerStatus) -> None:
        """Take in an announcement."""
        if status.leaving:
            self._forget([status.worker_id])
            return
        worker = self._workers.get(status.worker_id)
        if worker is None:
            worker = self._workers[status.worker_id] = Announced(status.worker_id)
        before = worker.cards
        changed = worker.hear(status, self._clock())
        if changed is None:
            self._ask_again(worker)
        elif changed:
            self._offer(worker, before, changed)

    def expire(self) -> None:
        """Forget workers that missed three of their intervals."""
        now = self._clock()
        self._forget(
            [
                worker.worker_id
                for worker in self._workers.values()
                if now - worker.heard_at > _MISSED_INTERVALS * worker.interval_s
            ]
        )

    def excuse_silence(self) -> None:
        """Count no silence up to now: nobody could be heard."""
        now = self._clock()
        for worker in self._workers.values():
            worker.heard_at = now

    def find(self, name: str) -> Served:
        """The model that a request names, by id or alias.

        Raises:
            UnknownModel: no worker serves it; the hint holds near names.
            NotReady: there is no worker at all, or its last one has gone of late.
        """
        served = self.get(self._id(name))
        if served is None:
            raise self._no_model(name)
        return served

    async def find_soon(self, name: str, limit_s: float) -> Served:
        """As `find`, but where it would say `NotReady`, wait for an announcement: up to `limit_s`, and 5 s at most."""
        if not self.knows(name):
            with contextlib.suppress(TimeoutError):  # `find` says what is missing
                async with asyncio.timeout(min(limit_s, _ANNOUNCED_WITHIN_S)):
                    while not self.knows(name) and self._may_come(name):
                        await self._news.wait()
        return self.find(name)

    def knows(self, name: str) -> bool:
        """Whether a model of this id or alias is served."""
        return self._id(name) in self._offers

    def get(self, model: str) -> Served | None:
        """The model of this id, if it is served."""
        served = self._served.get(model)
        if served is None and model in self._offers:
            served = self._served[model] = _add_up(model, list(self._offers[model].values()))
        return served

    @property
    def num_models(self) -> int:
        return len(self._offers)

    @property
    def ids(self) -> list[str]:
        """Of all models, sorted."""
        return sorted(self._offers)

    @property
    def models(self) -> list[Served]:
        """All models, by id."""
        return [served for model in self.ids if (served := self.get(model)) is not None]

    @property
    def num_workers(self) -> int:
        return sum(worker.has_announced for worker in self._workers.values())

    @property
    def is_ready(self) -> bool:
        """Whether a worker is alive that has a model ready, or could load one and is not busy loading."""
        return self.ready.is_set()

    def shown_names(self) -> str:
        """The ids served, for a message."""
        names = self.ids
        more = f", and {len(names) - _MAX_SHOWN_NAMES} more" if len(names) > _MAX_SHOWN_NAMES else ""
        return ", ".join(names[:_MAX_SHOWN_NAMES]) + more

    def failure(self, model: str) -> ShoalError | None:
        """Why a model cannot be loaded; None unless every worker that serves it has tried in vain of late."""
        served = self.get(model)
        return None if served is None or served.failure is None else ShoalError.from_body(served.failure)

    def not_loaded(self, model: str) -> NotReady | None:
        """The error for a request that waited in vain for a model to load; None when the model is ready."""
        served = self.get(model)
        if served is None:
            return NotReady(f"No worker that serves {model} is alive.", retry_after_s=_DEFAULT_LOAD_S)
        if served.is_ready:
            return None
        estimate_s, now = served.load_s or _DEFAULT_LOAD_S, self._clock()
        since = min((worker.loading_since.get(model, now) for worker in self._offers[model].values()), default=now)
        return NotReady(f"The model {model} is still loading.", retry_after_s=max(1.0, estimate_s - (now - since)))

    def _id(self, name: str) -> str:
        return name if name in self._offers else self._aliases.get(name, name)

    def _may_come(self, name: str) -> bool:
        lost_at = self._lost_at.get(name)
        return not self._offers or (lost_at is not None and self._clock() - lost_at < _LOST_OF_LATE_S)

    def _no_model(self, name: str) -> ShoalError:
        if self._may_come(name):
            what = f"that serves {name[:200]} is alive" if self._offers else "has announced itself yet"
            return NotReady(f"No worker {what}.", retry_after_s=2.0)
        near = near_names(name[:200], [*self._aliases, *self._offers])
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Served here: {self.shown_names()}."
        return UnknownModel(f"The model {name[:200]!r} is not served here.", param="model", hint=hint)

    def _ask_again(self, worker: Announced) -> None:
        now = self._clock()
        if now - self._asked_at.get(worker.worker_id, -_ASK_AGAIN_S) >= _ASK_AGAIN_S:
            self._asked_at[worker.worker_id] = now
            self._ask(worker.worker_id)

    def _forget(self, worker_ids: Iterable[str]) -> None:
        for worker_id in worker_ids:
            self._asked_at.pop(worker_id, None)
            if (worker := self._workers.pop(worker_id, None)) is not None:
                before, worker.cards = worker.cards, {}
                self._offer(worker, before, set(before))

    def _offer(self, worker: Announced, before: Mapping[str, ModelCard], changed: Collection[str]) -> None:
        """A worker that offered the models `before` now offers its cards; `changed` ones are added up anew."""
        for model in before.keys() - worker.cards.keys():
            del self._offers[model][worker.worker_id]
            if not self._offers[model]:
                del self._offers[model]
        for model in worker.cards.keys() - before.keys():
            self._offers.setdefault(model, {})[worker.worker_id] = worker
        for model in changed:
            self._served.pop(model, None)
        if before != worker.cards:
            self._name(before)
        if any(worker.can_serve for worker in self._workers.values()):
            self.ready.set()
        else:
            self.ready.clear()
        news, self._news = self._news, asyncio.Event()
        news.set()
        for callback in self._on_change:
            callback(changed)

    def _name(self, before: Collection[str]) -> None:
        """Models came or went, and with them their aliases."""
        now, aliases = self._clock(), self._aliases
        self._aliases = {
            alias: model
            for model, offers in self._offers.items()
            for alias in next(iter(offers.values())).cards[model].aliases
        }
        self._lost_at |= {name: now for name in (*before, *aliases) if not self.knows(name)}
        self._lost_at = {
            name: at for name, at in self._lost_at.items() if not self.knows(name) and now - at < _LOST_OF_LATE_S
        }


def _add_up(model: str, offers: list[Announced]) -> Served:
    states = [state for worker in offers if (state := worker.states.get(model)) is not None]
    ready = [state for state in states if state.state == "ready"]
    failed = [state for state in states if state.state == "failed"]
    quanta = [state.quantum_tokens for state in ready if state.quantum_tokens > 0]
    return Served(
        card=offers[0].cards[model],
        quantum_tokens=min(quanta, default=DEFAULT_QUANTUM_TOKENS),
        is_ready=bool(ready),
        is_loading=any(state.state == "loading" for state in states),
        load_s=max((state.load_s for state in states), default=0.0),
        failure=failed[0].error if failed and len(failed) == len(offers) else None,
        workers=frozenset(worker.worker_id for worker in offers),
        loaded=tuple(ready),
    )
