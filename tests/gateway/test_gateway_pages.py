"""Models, health, metrics, the API's description, and what is not there."""

from __future__ import annotations

import re

import httpx
import pytest
from openapi_spec_validator import validate
from prometheus_client.parser import text_string_to_metric_families

from gateway.conftest import Running, Start, running_gateway
from shoal.errors import InvalidRequest
from shoal.gateway.server import Server
from shoal.settings import GatewaySettings


async def test_models(running: Running) -> None:
    listed = (await running.http.get("/v1/models")).json()
    assert listed["object"] == "list"
    by_id = {model["id"]: model for model in listed["data"]}
    assert by_id["org/nested"]["matryoshka_dimensions"] == [8, 4]
    one = (await running.http.get("/v1/models/plain")).json()
    assert one == by_id["org/plain-model"]
    assert one | {"object": "model", "owned_by": "org", "state": "ready", "dimensions": 8, "max_length": 16} == one
    unknown = await running.http.get("/v1/models/org/plain-modle")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    assert "org/plain-model" in unknown.json()["error"]["message"]


async def test_health(running: Running) -> None:
    assert (await running.http.get("/healthz")).json() == {"status": "alive"}
    assert (await running.http.get("/readyz")).json() == {"status": "ready"}
    assert (await running.http.get("/")).json()["docs"] == "/docs"
    for state in ("loading", "failed"):
        running.worker.states = dict.fromkeys(running.worker.states, state)
        running.worker.announce()
        reply = await running.http.get("/readyz")
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "not_ready")
        assert "retry-after" in reply.headers
    running.worker.states = {}  # nothing loaded, everything loadable
    running.worker.announce()
    assert (await running.http.get("/readyz")).status_code == 200
    assert (await running.http.get("/healthz")).status_code == 200


async def test_wrong_paths_and_methods(running: Running) -> None:
    for method, path, status, is_openai in (
        ("POST", "/v1/embedings", 404, True),
        ("GET", "/v1/embeddings", 405, True),
        ("DELETE", "/v1/models", 405, True),
        ("GET", "/v1/embed", 405, False),
        ("PUT", "/v1/embed", 405, False),
        ("POST", "/v1/embed/", 404, False),
        ("GET", "/nothing", 404, False),
        ("POST", "/healthz", 405, False),
    ):
        reply = await running.http.request(method, path)
        assert reply.status_code == status, path
        error = reply.json()["error"]
        assert error["code"] == ("route_not_found" if status == 404 else "method_not_allowed")
        assert ("type" in error) == is_openai, path
        assert ("allow" in reply.headers) == (status == 405), path


async def test_metrics_are_there_at_zero(running: Running) -> None:
    page = await running.http.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(page.text)}
    for name in (
        "shoal_requests",
        "shoal_request_seconds",
        "shoal_items",
        "shoal_tokens",
        "shoal_truncated_items",
        "shoal_stage_seconds",
        "shoal_chunks",
        "shoal_dropped_replies",
        "shoal_chunks_in_flight",
    ):
        assert families[name].samples, name
        assert {sample.value for sample in families[name].samples} == {0.0}, name
    assert families["shoal_workers"].samples[0].value == 1
    codes = {sample.labels["code"] for sample in families["shoal_requests"].samples}
    assert {"ok", "client_gone", "deadline_exceeded", "overloaded", "model_not_found"} <= codes


async def test_metrics_count(running: Running) -> None:
    assert (await running.embed(input=["two words", "long " * 30])).status_code == 200
    for name in ("made-up-1", "made-up-2", "x" * 5000):
        assert (await running.embed(model=name, input="x")).status_code == 404
    page = (await running.http.get("/metrics")).text
    labels = 'model="org/plain-model",route="/v1/embeddings"'
    assert f'shoal_requests_total{{code="ok",{labels},tenant_class=""}} 1.0' in page
    assert 'shoal_requests_total{code="model_not_found",model="",route="/v1/embeddings",tenant_class=""} 3.0' in page
    assert 'shoal_items_total{model="org/plain-model"} 2.0' in page
    assert 'shoal_tokens_total{model="org/plain-model"} 20.0' in page
    assert 'shoal_truncated_items_total{model="org/plain-model"} 1.0' in page
    assert f"shoal_request_seconds_count{{{labels}}} 1.0" in page
    assert f'shoal_request_seconds_bucket{{le="+Inf",{labels}}} 1.0' in page
    assert 'shoal_stage_seconds_bucket{le="0.005",stage="inference"} 1.0' in page
    assert 'shoal_stage_seconds_bucket{le="0.0025",stage="inference"} 0.0' in page
    assert "made-up" not in page


async def test_openapi_is_valid_and_names_every_field(running: Running) -> None:
    document = (await running.http.get("/openapi.json")).json()
    validate(document)
    schemas = document["components"]["schemas"]
    assert schemas["OpenAIEmbedRequest"]["required"] == ["model", "input"]
    assert {"input", "encoding_format", "dimensions", "truncate"} <= set(schemas["OpenAIEmbedRequest"]["properties"])
    assert {"dtype", "prompt", "encoding"} <= set(schemas["NativeEmbedRequest"]["properties"])
    for path in document["paths"]:
        reply = await running.http.get(path.replace("{id}", "plain"))
        assert reply.status_code == (405 if "post" in document["paths"][path] else 200), path


async def test_docs_fetch_nothing_from_outside(running: Running) -> None:
    page = await running.http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert not re.search(r"""https?://|src=|@import|url\(|href="//""", page.text)
    assert "/v1/embeddings" in page.text
    assert "{{openapi}}" not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")


async def test_an_open_host_must_be_meant(running: Running) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(InvalidRequest, match="allow-open"):
            await Server(running.gateway.app, GatewaySettings(host=host, port=0)).start()


async def test_an_open_host_that_is_meant(start_gateway: Start) -> None:
    async with start_gateway(GatewaySettings(host="0.0.0.0", port=0, allow_open=True)) as running:
        assert (await running.embed(input="x")).status_code == 200


async def test_a_taken_port_is_named(running: Running) -> None:
    port = int(running.url.rsplit(":", 1)[1])
    with pytest.raises(OSError, match=f"port {port}"):
        await Server(running.gateway.app, GatewaySettings(port=port)).start()


async def test_a_closed_server_answers_nobody() -> None:
    async with running_gateway() as running:
        assert (await running.embed(input="x")).status_code == 200
        url = running.url
    async with httpx.AsyncClient(base_url=url) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("/healthz")


async def test_access_log_holds_no_text(start_gateway: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with start_gateway(GatewaySettings(port=0, access_log=True)) as running:
        await running.embed(input="a very private text")
        await running.embed(input=5)
    lines = [record for record in caplog.records if record.name == "shoal.access"]
    assert [record.fields["status"] for record in lines] == [200, 400]  # type: ignore[attr-defined]
    assert lines[0].fields["model"] == "org/plain-model"  # type: ignore[attr-defined]
    assert "private" not in "".join(str(record.__dict__) for record in caplog.records if record.name != "httpx")
