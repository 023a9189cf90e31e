"""Traces, as a collector receives them: OTLP over HTTP, decoded with the format's own classes."""

from __future__ import annotations

import builtins
import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.conftest import running_gateway
from shoal.errors import InvalidRequest
from shoal.settings import GatewaySettings

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SENTINEL = "a very private text"


class Collector(ThreadingHTTPServer):
    """Keeps the spans that come in."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    @property
    def spans(self) -> list[Any]:
        batches = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        scopes = [scope for batch in batches for resource in batch.resource_spans for scope in resource.scope_spans]
        return [span for scope in scopes for span in scope.spans]


class _Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


async def test_a_request_is_a_trace(collector: Collector) -> None:
    async with running_gateway(GatewaySettings(port=0, otlp_endpoint=collector.url)) as running:
        body = {"model": "plain", "input": SENTINEL}
        headers = {"traceparent": f"00-{TRACE}-{SPAN}-01", "x-request-id": "mine"}
        assert (await running.http.post("/v1/embed", json=body, headers=headers)).status_code == 200
        assert (await running.http.post("/v1/embed", json={"model": SENTINEL, "input": 5})).status_code == 404
    by_name = {span.name: span for span in collector.spans if span.trace_id.hex() == TRACE}
    whole = by_name["POST /v1/embed"]
    assert whole.parent_span_id.hex() == SPAN
    assert attributes(whole) == {
        "http.request.method": "POST",
        "http.route": "/v1/embed",
        "http.response.status_code": 200,
        "shoal.model": "org/plain-model",
        "shoal.request_id": "mine",
    }
    stages = [by_name[name] for name in ("queue", "tokenize", "batch", "inference")]
    at_ns = whole.start_time_unix_nano
    for stage in stages:
        assert stage.parent_span_id == whole.span_id
        assert at_ns <= stage.start_time_unix_nano <= stage.end_time_unix_nano <= whole.end_time_unix_nano
        at_ns = stage.end_time_unix_nano
    (failed,) = [span for span in collector.spans if span.trace_id.hex() != TRACE]
    assert attributes(failed)["error.type"] == "model_not_found"
    assert failed.status.code == failed.status.STATUS_CODE_ERROR
    assert not failed.parent_span_id
    assert SENTINEL.encode() not in b"".join(collector.bodies)


@pytest.mark.parametrize(
    "traceparent", [None, f"00-{TRACE}-{SPAN}-00", "nonsense", "00-" + "0" * 32 + "-" + SPAN + "-01"]
)
async def test_what_nobody_samples_is_not_sent(collector: Collector, traceparent: str | None) -> None:
    async with running_gateway(GatewaySettings(port=0, otlp_endpoint=collector.url, trace_ratio=0.0)) as running:
        headers = {} if traceparent is None else {"traceparent": traceparent}
        reply = await running.http.post("/v1/embed", json={"model": "plain", "input": "x"}, headers=headers)
        assert reply.status_code == 200
    assert collector.spans == []


async def test_a_collector_that_is_not_there_harms_nobody() -> None:
    async with running_gateway(GatewaySettings(port=0, otlp_endpoint="http://127.0.0.1:9")) as running:
        assert (await running.embed(input="x")).status_code == 200


async def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **fields: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **fields)

    monkeypatch.setattr(builtins, "__import__", without)
    async with running_gateway() as running:
        assert (await running.embed(input="x")).status_code == 200
    with pytest.raises(InvalidRequest, match="otlp_endpoint") as caught:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(running_gateway(GatewaySettings(port=0, otlp_endpoint="http://x")))
    assert "shoal[otel]" in (caught.value.hint or "")
