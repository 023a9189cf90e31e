"""What one worker has announced so far: it takes in the whole, in parts, and then what has changed. Pure."""

from __future__ import annotations

from collections import Counter

from shoal.types import LoadedModel, ModelCard, WorkerStatus

__all__ = ["Announced"]


class Announced:
    """A worker as a gateway knows it.

    Attributes:
        worker_id: its id.
        cards: by model, those that it can serve.
        states: by model, those that are ready, loading or have failed.
        loading_since: when it was first heard that a model loads.
        interval_s: its next announcement comes after so long at the latest.
        heard_at: when it was last heard.
    """

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id
        self.cards: dict[str, ModelCard] = {}
        self.states: dict[str, LoadedModel] = {}
        self.loading_since: dict[str, float] = {}
        self.interval_s = 0.0
        self.heard_at = 0.0
        self._revision = -1
        self._parts: list[WorkerStatus] = []
        self._counts: Counter[str] = Counter()

    @property
    def has_announced(self) -> bool:
        """Whether all was heard that there was to say."""
        return self._revision >= 0

    @property
    def can_serve(self) -> bool:
        """Whether it has a model ready, or could load one and is not busy loading."""
        if self._counts["ready"]:
            return True
        return not self._counts["loading"] and self._counts["failed"] < len(self.cards)

    def hear(self, status: WorkerStatus, now: float) -> set[str] | None:
        """Take in an announcement; returns the models of which there is news, or None if the whole is missing."""
        self.heard_at, self.interval_s = now, status.interval_s
        if status.since:
            return self._hear_change(status, now)
        if status.revision and status.revision == self._revision:
            return set()  # somebody else did not know
        return self._hear_part(status, now)

    def _hear_change(self, status: WorkerStatus, now: float) -> set[str] | None:
        if status.since != self._revision:
            return None
        self._revision = status.revision
        self.cards = self.cards | {card.id: card for card in status.cards}
        for state in status.models:
            self._set(state.id, state, now)
        for model in status.unloaded:
            self._set(model, None, now)
        return {card.id for card in status.cards} | {state.id for state in status.models} | set(status.unloaded)

    def _hear_part(self, status: WorkerStatus, now: float) -> set[str] | None:
        if self._parts and (self._parts[0].revision != status.revision or status.part == 0):
            self._parts = []
        self._parts.append(status)
        if len(self._parts) < status.num_parts:
            return set()
        parts, self._parts = self._parts, []
        if [part.part for part in parts] != list(range(status.num_parts)):
            return None
        return self._hear_whole(parts, now)

    def _hear_whole(self, parts: list[WorkerStatus], now: float) -> set[str]:
        self._revision = parts[0].revision
        before_cards, before_states = self.cards, dict(self.states)
        self.cards = {card.id: card for part in parts for card in part.cards}
        states = {state.id: state for part in parts for state in part.models}
        for model in before_states.keys() | states.keys():
            self._set(model, states.get(model), now)
        models = before_cards.keys() | self.cards.keys() | before_states.keys() | states.keys()
        return {
            model
            for model in models
            if before_cards.get(model) != self.cards.get(model) or before_states.get(model) != states.get(model)
        }

    def _set(self, model: str, state: LoadedModel | None, now: float) -> None:
        before = self.states.pop(model, None)
        if before is not None:
            self._counts[before.state] -= 1
        if state is not None:
            self.states[model] = state
            self._counts[state.state] += 1
        if state is not None and state.state == "loading":
            self.loading_since.setdefault(model, now)
        else:
            self.loading_since.pop(model, None)
