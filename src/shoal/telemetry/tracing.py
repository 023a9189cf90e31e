"""Spans of requests for an OpenTelemetry collector, made after the fact from the times that replies state.

So a request that nobody samples costs a look at its `traceparent`, and one without tracing nothing. The library comes
with the extra `otel` and is imported only when an endpoint is named; its own OTEL_* variables (headers, resource
attributes) hold. No user text goes into a span.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shoal.errors import InvalidRequest

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

__all__ = ["Tracing", "open_tracing"]

_FLUSH_MS = 3000

Attributes = Mapping[str, str | int | float]


class Tracing:
    """Sends spans to one collector; the sending is done in a thread of the library's.

    Args:
        endpoint: base URL of the collector's OTLP over HTTP, such as http://127.0.0.1:4318.
        ratio: part of the traces begun here that are sent; where a client began the trace, its own choice holds.
        version: of Shoal.
    """

    def __init__(self, endpoint: str, ratio: float, version: str) -> None:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._trace = trace
        self._propagator = TraceContextTextMapPropagator()
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(ratio)),
            resource=Resource.create({"service.name": "shoal", "service.version": version}),
        )
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=_FLUSH_MS / 1000)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("shoal", version)

    def request(
        self,
        name: str,
        parent: Mapping[str, str],
        start_ns: int,
        end_ns: int,
        attributes: Attributes,
        stages: Mapping[str, float],
        error: str,
    ) -> None:
        """Record a request that is over.

        Args:
            parent: the headers `traceparent` and `tracestate`, as far as they were sent.
            start_ns, end_ns: Unix time in nanoseconds.
            stages: seconds of each, in order; the last one ended with the request.
            error: code of what went wrong, "" for a success.
        """
        kind = self._trace.SpanKind.SERVER
        span = self._tracer.start_span(
            name, self._propagator.extract(parent), kind, attributes=attributes, start_time=start_ns
        )
        if span.is_recording():
            if error:
                span.set_attribute("error.type", error)
                span.set_status(self._trace.StatusCode.ERROR, error)
            self._stages(span, stages, start_ns, end_ns)
        span.end(end_ns)

    def _stages(self, span: Span, stages: Mapping[str, float], start_ns: int, end_ns: int) -> None:
        inside: Context = self._trace.set_span_in_context(span)
        at_ns = max(start_ns, end_ns - int(sum(stages.values()) * 1e9))
        for name, seconds in stages.items():
            stage = self._tracer.start_span(name, inside, start_time=at_ns)
            at_ns = min(end_ns, at_ns + int(seconds * 1e9))
            stage.end(at_ns)

    def close(self) -> None:
        """Send what is left, for a few seconds at most. It blocks."""
        self._provider.force_flush(_FLUSH_MS)
        self._provider.shutdown()


def open_tracing(endpoint: str, ratio: float, version: str) -> Tracing | None:
    """Tracing to an endpoint; None without one.

    Raises:
        InvalidRequest: the extra is not installed.
    """
    if not endpoint:
        return None
    try:
        return Tracing(endpoint, ratio, version)
    except ImportError as error:
        raise InvalidRequest(
            f"otlp_endpoint is set, and {error.name} is not installed.",
            param="otlp_endpoint",
            hint='Install the extra: pip install "shoal[otel]".',
        ) from error
