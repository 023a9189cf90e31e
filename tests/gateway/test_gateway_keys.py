"""API keys over real sockets: who gets in, what each key allows and has left, and files that change (C36)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gateway.conftest import Running, running_gateway
from shoal.errors import Forbidden, InvalidRequest, QuotaExceeded, ShoalError
from shoal.gateway.keys import keyfile
from shoal.gateway.keys.quotas import Quota
from shoal.settings import GatewaySettings

ROUTES = {
    "/v1/embeddings": lambda body: body["error"]["code"],
    "/v1/embed": lambda body: body["error"]["code"],
    "/v1/rerank": lambda body: body["error"]["code"],
    "/cohere/v2/embed": lambda body: body["message"],
    "/v2/rerank": lambda body: body["message"],
    "/jina/v1/embeddings": lambda body: body["detail"],
    "/voyage/v1/rerank": lambda body: body["detail"],
    "/tei/org/plain-model/embed": lambda body: body["error_type"],
    "/embed": lambda body: body["error_type"],
}
"""Where the error stands in each API's shape."""

BODY = {"model": "plain", "input": "two words"}


def make_key(path: Path, **fields: Any) -> str:
    key, key_id = keyfile.new_key()
    keyfile.add(path, keyfile.Key(key_id, keyfile.digest_of(key.encode()), **{"tenant": "a-team", **fields}))
    return key


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@contextlib.asynccontextmanager
async def guarded(path: Path, **settings: Any) -> AsyncIterator[Running]:
    async with running_gateway(GatewaySettings(port=0, keys_file=str(path), **settings)) as running:
        yield running


async def embed(running: Running, key: str, **fields: Any) -> httpx.Response:
    return await running.http.post("/v1/embeddings", json=BODY | fields, headers=bearer(key))


async def status_changes(running: Running, key: str, before: int) -> None:
    """Ask until the answer is another one: the file is looked at once a second."""
    async with asyncio.timeout(20):
        while (await embed(running, key)).status_code == before:
            pass


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.jsonl"


async def test_health_is_open_and_the_rest_is_not(path: Path) -> None:
    """C36: what answers without a key."""
    key = make_key(path)
    async with guarded(path) as running:
        for page in ("/", "/healthz", "/readyz", "/health", "/tei/health", "/docs", "/openapi.json"):
            assert (await running.http.get(page)).status_code == 200, page
        for page in ("/v1/models", "/v1/models/plain", "/metrics", "/tei/plain/info"):
            reply = await running.http.get(page)
            assert reply.status_code == 401, page
            assert reply.headers["www-authenticate"].startswith("Bearer")
            assert reply.headers["content-type"] == "application/json"
        assert (await running.http.get("/v1/models", headers=bearer(key))).status_code == 200
        assert (await running.http.get("/metrics", headers=bearer(key))).status_code == 403
    async with guarded(path, open_metrics=True, open_docs=False) as running:
        assert (await running.http.get("/metrics")).status_code == 200
        for page in ("/docs", "/openapi.json"):
            assert (await running.http.get(page)).status_code == 401
            assert (await running.http.get(page, headers=bearer(key))).status_code == 200


async def test_every_surface_refuses_in_its_own_shape(path: Path) -> None:
    """C36: without a key, with a wrong one, with another scheme; before a byte of the body is looked at."""
    key = make_key(path)
    wrong = [{}, bearer("nope"), bearer(key[:-1]), {"authorization": f"Basic {key}"}, {"x-api-key": "no"}]
    async with guarded(path) as running:
        for route, find_code in ROUTES.items():
            for headers in wrong:
                reply = await running.http.post(route, content=b"no JSON", headers=headers)
                assert reply.status_code == 401, (route, headers)
                assert find_code(reply.json())
                assert reply.headers["www-authenticate"].startswith("Bearer")
                assert reply.headers["content-type"] == "application/json"
                assert reply.headers["x-request-id"]
                assert key not in reply.text
            assert (await running.http.post(route, content=b"no JSON", headers=bearer(key))).status_code != 401
        assert running.worker.chunks == []


async def test_refused_before_the_body_comes(path: Path) -> None:
    make_key(path)
    async with guarded(path) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(running.url.rsplit(":", 1)[1]))
        writer.write(b"POST /v1/embed HTTP/1.1\r\nhost: x\r\ncontent-length: 30000000000\r\n\r\n")
        async with asyncio.timeout(20):
            assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        writer.close()


async def test_where_a_key_may_stand(path: Path) -> None:
    key = make_key(path)
    ways = [{"authorization": f"{scheme} {key}"} for scheme in ("Bearer", "bearer", "BEARER", "Bearer ")] + [
        {"x-api-key": key},
        {"api-key": key},
    ]
    async with guarded(path) as running:
        for headers in ways:
            assert (await running.http.post("/v1/embeddings", json=BODY, headers=headers)).status_code == 200, headers


async def test_the_openai_client(path: Path) -> None:
    """C27, C36: the official client raises what its users catch."""
    key = make_key(path)
    async with guarded(path) as running:
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0) as client:
            assert len((await client.embeddings.create(model="plain", input="x")).data) == 1
            assert [model.id async for model in client.models.list()]
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="wrong", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError) as caught:
                await client.embeddings.create(model="plain", input="x")
            assert caught.value.code == "unauthorized"
        limited = make_key(path, scopes=("rerank",))
        await status_changes(running, limited, 401)
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=limited, max_retries=0) as client:
            with pytest.raises(openai.PermissionDeniedError):
                await client.embeddings.create(model="plain", input="x")


async def test_scopes_and_models(path: Path) -> None:
    scraper, ranker = make_key(path, scopes=("metrics",)), make_key(path, scopes=("rerank",))
    narrow = make_key(path, models=("org/n*",))
    async with guarded(path) as running:
        assert (await running.http.get("/metrics", headers=bearer(scraper))).status_code == 200
        assert (await running.http.get("/v1/models", headers=bearer(scraper))).status_code == 403
        for key, words in ((scraper, "metrics"), (ranker, "rerank")):
            reply = await embed(running, key)
            assert (reply.status_code, reply.json()["error"]["code"]) == (403, "forbidden")
            assert "embed" in reply.json()["error"]["message"]
            assert words in reply.json()["error"]["message"]
        listed = (await running.http.get("/v1/models", headers=bearer(narrow))).json()["data"]
        assert [model["id"] for model in listed] == ["org/nested"]
        assert (await running.http.get("/v1/models/plain", headers=bearer(narrow))).status_code == 403
        assert (await running.http.get("/tei/plain/info", headers=bearer(narrow))).status_code == 403
        assert (await embed(running, narrow, model="org/nested")).status_code == 200
        reply = await embed(running, narrow)
        assert (reply.status_code, reply.json()["error"]["param"]) == (403, "model")
        assert running.worker.demands == []


async def test_a_forbidden_model_is_not_loaded(path: Path) -> None:
    narrow = make_key(path, models=("org/n*",))
    async with guarded(path) as running:
        running.worker.states = {}
        running.worker.announce()
        assert (await embed(running, narrow)).status_code == 403
        assert (await embed(running, narrow, model="org/nested")).status_code == 200
        await running.worker.wait_for(lambda: bool(running.worker.demands))
        assert {demand.model for demand in running.worker.demands} == {"org/nested"}


async def test_tokens_of_a_minute(path: Path) -> None:
    """The estimate is taken first and corrected by what was run; what was not run costs nothing."""
    key, other = make_key(path, tokens_per_minute=1000), make_key(path)
    async with guarded(path) as running:
        texts = ["w" * 60] * 30  # 480 tokens by their size, 90 as the worker counts
        for _ in range(5):
            assert (await embed(running, key, input=texts)).status_code == 200
        for _ in range(5):
            assert (await embed(running, key, input=["poison", *texts])).status_code == 400
        assert (await embed(running, key, input=["w " * 30] * 34)).status_code == 200  # 544, cut to the model's 16 each
        reply = await embed(running, key, input=texts)
        assert (reply.status_code, reply.json()["error"]["code"]) == (429, "quota_exceeded")
        assert 1 <= int(reply.headers["retry-after"]) <= 30
        assert "1000 a minute" in reply.json()["error"]["message"]
        assert (await embed(running, other, input=texts)).status_code == 200


async def test_requests_at_once(path: Path) -> None:
    key = make_key(path, max_requests=2)
    async with guarded(path) as running:
        running.worker.is_holding = True
        under_way = [asyncio.create_task(embed(running, key)) for _ in range(2)]
        await running.worker.wait_for(lambda: len(running.worker.held) == 2)
        refused = await embed(running, key)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        for chunk, lease in running.worker.held:
            running.worker.reply(chunk, lease)
        assert [reply.status_code for reply in await asyncio.gather(*under_way)] == [200, 200]
        running.worker.is_holding = False
        for _ in range(5):
            assert (await embed(running, key)).status_code == 200


async def test_a_client_that_leaves_gives_its_place_back(path: Path) -> None:
    key = make_key(path, max_requests=1)
    async with guarded(path) as running:
        running.worker.is_holding = True
        with pytest.raises(httpx.ReadTimeout):
            await running.http.post("/v1/embeddings", json=BODY, headers=bearer(key), timeout=0.3)
        running.worker.is_holding = False
        await status_changes(running, key, 429)


async def test_keys_that_come_and_go(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = make_key(path)
    async with guarded(path, open_metrics=True) as running:
        second = make_key(path)
        await status_changes(running, second, 401)
        keyfile.remove(path, first.split("_")[1])
        await status_changes(running, first, 200)
        third = break_file(path)
        await failures_pass(running, 0)
        assert "line 2" in caplog.text
        statuses = [(await embed(running, key)).status_code for key in (first, second, third)]
        assert statuses == [401, 200, 401]
        os.remove(path)
        await failures_pass(running, 1)
        assert (await embed(running, second)).status_code == 200
        third = make_key(path)
        await status_changes(running, third, 401)
        assert (await embed(running, second)).status_code == 401


async def failures_pass(running: Running, number: int) -> None:
    async with asyncio.timeout(20):
        while f"shoal_key_file_failures_total {number}.0" in (await running.http.get("/metrics")).text:
            pass


def break_file(path: Path) -> str:
    """Half a line, and a right one behind it."""
    key, key_id = keyfile.new_key()
    line = f'{{"id":"{key_id}","sha256":"{keyfile.digest_of(key.encode())}","tenant":"t"}}'
    path.write_text(path.read_text() + '{"id": "half a li\n' + line + "\n")
    return key


async def test_a_key_expires(path: Path) -> None:
    over, valid = make_key(path, expires_at=int(time.time()) - 1), make_key(path, expires_at=int(time.time()) + 1000)
    async with guarded(path) as running:
        reply = await embed(running, over)
        assert reply.status_code == 401
        assert "expired" in reply.json()["error"]["message"]
        assert (await embed(running, valid)).status_code == 200


async def test_tenants_count_by_class(path: Path) -> None:
    gold, plain = make_key(path, tenant_class="gold"), make_key(path)
    async with guarded(path, open_metrics=True) as running:
        page = (await running.http.get("/metrics")).text
        for tenant_class in ("", "gold", "standard"):
            labels = f'model="",route="/v1/embeddings",tenant_class="{tenant_class}"'
            assert f'shoal_requests_total{{code="quota_exceeded",{labels}}} 0.0' in page
        for key in (gold, plain, plain):
            await embed(running, key)
        await embed(running, "wrong")
        page = (await running.http.get("/metrics")).text
        labels = 'model="org/plain-model",route="/v1/embeddings"'
        assert f'shoal_requests_total{{code="ok",{labels},tenant_class="gold"}} 1.0' in page
        assert f'shoal_requests_total{{code="ok",{labels},tenant_class="standard"}} 2.0' in page
        assert 'code="unauthorized",model="",route="/v1/embeddings",tenant_class=""} 1.0' in page
        assert "a-team" not in page


def test_the_file_holds_no_key_and_is_its_owners(path: Path) -> None:
    key = make_key(path)
    assert key.rpartition("_")[2] not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    os.chmod(path, 0o640)
    make_key(path)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{}", "id"),
        ("no json", "malformed"),
        ('{"id":"a","sha256":"beef","tenant":"t"}', "sha256"),
        ('{"id":"a","sha256":"' + "a" * 64 + '","tenant":"t","scopes":["all"]}', "scopes"),
        ('{"id":"a","sha256":"' + "a" * 64 + '","tenant":"no blanks"}', "tenant"),
        ('{"id":"a","sha256":"' + "a" * 64 + '","tenant":"t","max_requests":-1}', "max_requests"),
        ('{"id":"a","sha256":"' + "a" * 64 + '","tenant":"t","quota":1}', "quota"),
        ('{"id":"a","sha256":"' + "a" * 64 + '","tenant":"t","priority":"high"}', "priority"),
    ],
)
def test_a_wrong_line_is_named(path: Path, line: str, words: str) -> None:
    make_key(path)
    path.write_text(path.read_text() + "\n# a remark\n" + line + "\n")
    with pytest.raises(InvalidRequest, match="line 4") as caught:
        keyfile.read(path)
    assert words in caught.value.message


def test_twice_the_same_key_and_too_many_classes(path: Path) -> None:
    make_key(path)
    path.write_text(path.read_text() * 2)
    with pytest.raises(InvalidRequest, match="twice"):
        keyfile.read(path)
    path.unlink()
    for number in range(keyfile.MAX_CLASSES):
        make_key(path, tenant_class=f"class-{number}")
    make_key(path, tenant_class="one-more")
    with pytest.raises(InvalidRequest, match="classes"):
        keyfile.read(path)


def test_removing_keeps_the_other_lines(path: Path) -> None:
    first, second = make_key(path), make_key(path)
    path.write_text("# ours\n" + path.read_text())
    keyfile.remove(path, first.split("_")[1])
    assert [key.id for key in keyfile.read(path).values()] == [second.split("_")[1]]
    assert path.read_text().startswith("# ours\n")
    with pytest.raises(InvalidRequest, match="no key"):
        keyfile.remove(path, first.split("_")[1])


def test_a_bucket_fills_with_time() -> None:
    now = 0.0
    key = keyfile.Key("a", "b", "t", tokens_per_minute=60)
    quota = Quota(key, lambda: now)
    quota.charge(key, 60)
    with pytest.raises(QuotaExceeded) as caught:
        quota.charge(key, 30)
    assert caught.value.retry_after_s == pytest.approx(30)
    now = 30.0
    quota.charge(key, 30)
    now = 1000.0  # no more than a minute's worth gathers
    quota.charge(key, 600)  # larger than the bucket: it leaves a debt
    with pytest.raises(QuotaExceeded) as caught:
        quota.enter(key)
    assert caught.value.retry_after_s == pytest.approx(541)


def test_the_error_tree() -> None:
    assert isinstance(ShoalError.from_body(Forbidden("no").to_body()), Forbidden)
    assert QuotaExceeded.is_retryable
    assert not Forbidden.is_retryable


async def test_a_missing_file_ends_the_start(path: Path) -> None:
    with pytest.raises(InvalidRequest, match="keys_file"):
        async with guarded(path):
            pass


async def test_open_hosts_need_no_word_with_keys(path: Path) -> None:
    key = make_key(path)
    async with guarded(path, host="0.0.0.0") as running:
        assert (await embed(running, key)).status_code == 200
        assert (await running.http.post("/v1/embeddings", json=BODY)).status_code == 401


ORIGIN = "https://app.example"


async def test_browsers(path: Path) -> None:
    """C36: the preflight allows what is needed, for the allowed origin alone; it needs no key."""
    key = make_key(path)
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization, content-type"}
    async with guarded(path, cors_origins=f"https://other.example, {ORIGIN}/") as running:
        reply = await running.http.options("/v1/embeddings", headers={"origin": ORIGIN, **asked})
        assert reply.status_code == 204
        assert reply.headers["access-control-allow-origin"] == ORIGIN
        allowed = reply.headers["access-control-allow-headers"].split(", ")
        assert {"authorization", "content-type", "x-shoal-timeout"} <= set(allowed)
        assert "POST" in reply.headers["access-control-allow-methods"]
        foreign = await running.http.options("/v1/embeddings", headers={"origin": "https://evil.example", **asked})
        assert not [name for name in foreign.headers if name.startswith("access-control-allow")]
        for sent, status in ((bearer(key), 200), ({}, 401)):
            reply = await running.http.post("/v1/embeddings", json=BODY, headers={"origin": ORIGIN, **sent})
            assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (status, ORIGIN)
            assert "x-request-id" in reply.headers["access-control-expose-headers"]
        foreign = await running.http.post("/v1/embeddings", json=BODY, headers={"origin": "null", **bearer(key)})
        assert "access-control-allow-origin" not in foreign.headers
        assert foreign.headers["vary"] == "Origin"
        assert "vary" not in (await embed(running, key)).headers


async def test_all_origins_and_none() -> None:
    asked = {"origin": ORIGIN, "access-control-request-method": "POST"}
    async with running_gateway(GatewaySettings(port=0, cors_origins="*")) as running:
        assert (await running.http.options("/v1/embed", headers=asked)).headers["access-control-allow-origin"] == "*"
    async with running_gateway() as running:
        reply = await running.http.options("/v1/embed", headers=asked)
        assert reply.status_code == 405
        assert not [name for name in reply.headers if name.startswith("access-control")]


async def test_keys_are_not_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = make_key(path)
    caplog.set_level("DEBUG")
    async with guarded(path, access_log=True) as running:
        await embed(running, key)
        await embed(running, key + "x")
    own = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert len(own) > 1
    assert key.rpartition("_")[2] not in "".join(f"{record.getMessage()} {record.__dict__}" for record in own)
