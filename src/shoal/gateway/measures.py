"""The gateway's metrics: declared once, present at zero, with children bound ahead of the hot path.

Labels are bounded: routes are ours, models are those that workers announced; a name that nobody serves counts under "";
tenants count by the class that their key states, of which there are few.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from shoal.errors import CODES
from shoal.gateway.ask import Answer
from shoal.telemetry.metrics import Count, Histogram, Metrics
from shoal.types import StageTimes

__all__ = ["CLIENT_GONE", "Measures"]

CLIENT_GONE = "client_gone"
"""Outcome code of a request whose client hung up."""


class _OfModel:
    """The children that a successful request to one route and model touches."""

    __slots__ = ("items", "ok", "seconds", "tokens", "truncated")

    def __init__(self, ok: Count, seconds: Histogram, items: Count, tokens: Count, truncated: Count) -> None:
        self.ok = ok
        self.seconds = seconds
        self.items = items
        self.tokens = tokens
        self.truncated = truncated


class Measures:
    """What the gateway counts.

    Args:
        routes: all, whose outcomes show at zero.
        own_routes: those that show each model at zero; the others show it once they are used with it.
    """

    def __init__(self, metrics: Metrics, routes: Sequence[str], own_routes: Sequence[str]) -> None:
        self.metrics = metrics
        self._routes = routes
        self._own_routes = own_routes
        of_request = ("route", "model")
        self._requests = metrics.counter(
            "shoal_requests",
            "Requests by outcome: ok, an error code, or client_gone.",
            (*of_request, "tenant_class", "code"),
        )
        self._seconds = metrics.histogram("shoal_request_seconds", "Whole time of successful requests.", of_request)
        self._items = metrics.counter("shoal_items", "Items answered.", ("model",))
        self._tokens = metrics.counter("shoal_tokens", "Tokens run, after truncation.", ("model",))
        self._truncated = metrics.counter("shoal_truncated_items", "Items that were cut to fit the model.", ("model",))
        stages = metrics.histogram("shoal_stage_seconds", "Time by stage, of each request's slowest chunk.", ("stage",))
        self._queue, self._tokenize = stages.child("queue"), stages.child("tokenize")
        self._batch, self._inference = stages.child("batch"), stages.child("inference")
        self._chunks = metrics.counter("shoal_chunks", "Chunks answered.").child()
        self.dropped_replies = metrics.counter(
            "shoal_dropped_replies", "Chunk replies that came twice, or after the request had ended."
        ).child()
        self._of_model: dict[tuple[str, str, str], _OfModel] = {}
        self._classes: tuple[str, ...] = ()

    def watch(
        self,
        open_chunks: Callable[[], float],
        num_workers: Callable[[], float],
        waiting_s: Callable[[], float],
        on_way_s: Callable[[], float],
    ) -> None:
        """Declare what is read when somebody scrapes."""
        self.metrics.gauge("shoal_waiting_seconds", "Work that waits in this gateway for its turn.", waiting_s)
        self.metrics.gauge("shoal_on_way_seconds", "Work published by this gateway and not answered yet.", on_way_s)
        self.metrics.gauge("shoal_chunks_in_flight", "Chunks published and not answered yet.", open_chunks)
        self.metrics.gauge("shoal_workers", "Workers alive.", num_workers)

    def know_classes(self, tenant_classes: tuple[str, ...]) -> None:
        """Show the outcomes of these tenants' requests at zero."""
        self._classes = tenant_classes
        for route, tenant_class in itertools.product(self._routes, tenant_classes):
            for code in ("ok", CLIENT_GONE, *CODES):
                self._requests.child(route, "", tenant_class, code)

    def know(self, model: str) -> None:
        """Show a model's metrics at zero."""
        for route, tenant_class in itertools.product(self._own_routes, self._classes):
            self._find(route, model, tenant_class)

    def succeed(self, route: str, answer: Answer, tenant_class: str) -> None:
        """Count a request answered."""
        of_model = self._find(route, answer.card.id, tenant_class)
        of_model.ok.value += 1
        of_model.seconds.observe(answer.total_s)
        of_model.items.value += answer.num_items
        of_model.tokens.value += answer.num_tokens
        of_model.truncated.value += answer.num_truncated
        self._chunks.value += len(answer.replies)
        self._observe(answer.times)

    def fail(self, route: str, model: str, code: str, tenant_class: str) -> None:
        """Count a request that ended otherwise."""
        self._requests.child(route, model, tenant_class, code).value += 1

    def _observe(self, times: StageTimes) -> None:
        self._queue.observe(times.queue_s)
        self._tokenize.observe(times.tokenize_s)
        self._batch.observe(times.batch_s)
        self._inference.observe(times.inference_s)

    def _find(self, route: str, model: str, tenant_class: str) -> _OfModel:
        found = self._of_model.get((route, model, tenant_class))
        if found is None:
            found = self._of_model[route, model, tenant_class] = _OfModel(
                self._requests.child(route, model, tenant_class, "ok"),
                self._seconds.child(route, model),
                self._items.child(model),
                self._tokens.child(model),
                self._truncated.child(model),
            )
        return found
