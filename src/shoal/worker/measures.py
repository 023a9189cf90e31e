"""A worker's metrics: declared once, present at zero, set where things happen.

Labels are bounded: models are those that this worker was given, codes and priorities are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import get_args

from shoal.errors import CODES
from shoal.telemetry.metrics import SHARE_BUCKETS, Count, Histogram, Metrics
from shoal.types import LoadedModel, Priority
from shoal.worker.work import Batch, Model, Work

__all__ = ["Measures"]

_STATES = ("ready", "loading", "failed")


class _OfModel:
    """The children that a batch of one model touches."""

    __slots__ = ("batches", "fill", "items", "seconds", "tokens")

    def __init__(self, batches: Count, items: Count, tokens: Count, seconds: Histogram, fill: Histogram) -> None:
        self.batches = batches
        self.items = items
        self.tokens = tokens
        self.seconds = seconds
        self.fill = fill


class Measures:
    """What a worker counts.

    Attributes:
        memory_errors: batches that did not fit into the device's memory.
        host_restarts: starts of the runtime host after the first.
        dead_letters: chunks given up for good.
        abandoned_at_pull, abandoned_held: chunks dropped because their caller had gone.
        loads, load_failures, evictions: of models.
        load_seconds: of loads that went well.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        of_model = ("model",)
        self._batches = metrics.counter("shoal_batches", "Batches run.", of_model)
        self._items = metrics.counter("shoal_batch_items", "Items run in batches.", of_model)
        self._tokens = metrics.counter("shoal_batch_tokens", "True tokens run in batches, no padding.", of_model)
        self._seconds = metrics.histogram("shoal_batch_seconds", "Device time of batches; its sum is work.", of_model)
        self._fill = metrics.histogram(
            "shoal_batch_fill", "Tokens of a batch as a part of the quantum.", of_model, SHARE_BUCKETS
        )
        ages = metrics.histogram("shoal_queue_age_seconds", "How long chunks had waited when pulled.", ("priority",))
        self._ages = {priority: ages.child(priority) for priority in get_args(Priority)}
        self._replies = metrics.counter("shoal_chunk_replies", "Chunks answered, by outcome.", ("code",))
        self._redelivered = metrics.counter("shoal_redelivered_chunks", "Chunks that had been on loan before.").child()
        self._handed_back = metrics.counter("shoal_handed_back_chunks", "Chunks given to other workers.").child()
        self._of_model: dict[str, _OfModel] = {}
        for code in ("ok", *CODES):
            self._replies.child(code)
        self._declare_counts(metrics)

    def _declare_counts(self, metrics: Metrics) -> None:
        self.memory_errors = metrics.counter("shoal_memory_errors", "Batches that did not fit into memory.").child()
        self.host_restarts = metrics.counter("shoal_host_restarts", "Starts of the runtime host after a death.").child()
        self.dead_letters = metrics.counter("shoal_dead_letters", "Chunks given up for good.").child()
        abandoned = metrics.counter("shoal_abandoned_chunks", "Chunks dropped as their caller had gone.", ("stage",))
        self.abandoned_at_pull, self.abandoned_held = abandoned.child("pull"), abandoned.child("held")
        self.loads = metrics.counter("shoal_model_loads", "Models loaded.").child()
        self.load_failures = metrics.counter("shoal_model_load_failures", "Models that could not be loaded.").child()
        self.evictions = metrics.counter("shoal_model_evictions", "Models unloaded to make room.").child()
        self.load_seconds = metrics.histogram("shoal_model_load_seconds", "Time that loads took.").child()

    def know(self, models: Iterable[str]) -> None:
        """Show the metrics of these models at zero."""
        for model in models:
            self._find(model)

    def ran(self, batch: Batch, seconds: float) -> None:
        """Count a batch."""
        of_model = self._find(batch.model.id)
        of_model.batches.value += 1
        of_model.items.value += len(batch.items)
        of_model.tokens.value += batch.num_tokens
        of_model.seconds.observe(seconds)
        of_model.fill.observe(batch.num_tokens / max(1, batch.model.quantum_tokens))

    def took(self, work: Work) -> None:
        """Count a chunk that came from the queue."""
        self._ages[work.chunk.priority].observe(work.queue_s)
        if work.lease.delivery_count > 1:
            self._redelivered.value += 1

    def answered(self, code: str) -> None:
        """Count a reply: `ok` or an error's code."""
        self._replies.child(code).value += 1

    def handed_back(self) -> None:
        """Count a chunk that another worker shall do."""
        self._handed_back.value += 1

    def watch(
        self,
        models: Collection[Model],
        states: Callable[[], Iterable[LoadedModel]],
        device_tokens: Callable[[], float],
        bytes_in_use: Callable[[], float],
        bytes_allowed: Callable[[], float],
    ) -> None:
        """Declare what is read when somebody scrapes.

        Args:
            models: those that serve, as a live view.
            states: of all models.
            device_tokens: tokens that the device has run so far, padding included.
            bytes_in_use: of models that load, serve or leave: weights, and room for activations.
            bytes_allowed: for all of them.
        """

        def gauge(name: str, help: str, read: Callable[[Model], float]) -> None:
            self.metrics.gauge(name, help, lambda: {(model.id,): read(model) for model in models}, ("model",))

        gauge("shoal_cost_a_seconds", "a in S(tokens) = a + c * tokens, as used now.", lambda model: model.cost.a_s)
        gauge("shoal_cost_c_seconds", "c in S(tokens) = a + c * tokens, as used now.", lambda model: model.cost.c_s)
        gauge("shoal_quantum_tokens", "Tokens that a batch should have at most.", lambda model: model.quantum_tokens)
        gauge("shoal_held_seconds", "Work on loan, in seconds of the device.", lambda model: model.held_s)
        gauge("shoal_waiting_items", "Items that wait for the device.", lambda model: len(model.waiting))
        self.metrics.gauge("shoal_models", "Models by state.", lambda: _by_state(states()), ("state",))
        self.metrics.gauge("shoal_device_tokens", "Tokens run so far, padding included.", device_tokens)
        self.metrics.gauge("shoal_model_bytes", "Bytes that loaded models take.", bytes_in_use)
        self.metrics.gauge("shoal_model_budget_bytes", "Bytes that models may take together.", bytes_allowed)

    def _find(self, model: str) -> _OfModel:
        found = self._of_model.get(model)
        if found is None:
            found = self._of_model[model] = _OfModel(
                self._batches.child(model),
                self._items.child(model),
                self._tokens.child(model),
                self._seconds.child(model),
                self._fill.child(model),
            )
        return found


def _by_state(states: Iterable[LoadedModel]) -> dict[tuple[str, ...], float]:
    counts: dict[tuple[str, ...], float] = {(state,): 0.0 for state in _STATES}
    for loaded in states:
        counts[(loaded.state,)] = counts.get((loaded.state,), 0.0) + 1
    return counts
