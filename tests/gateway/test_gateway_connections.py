"""Clients that hold connections, or fill them: each is cut or refused, and the others are served. TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from gateway.conftest import Running, running_gateway
from shoal.errors import InvalidRequest
from shoal.gateway.server import Server
from shoal.settings import GatewaySettings

HEAD = b"POST /v1/embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"

SESSION = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
async def strict() -> AsyncIterator[Running]:
    settings = GatewaySettings(
        port=0, header_timeout_s=0.3, keep_alive_s=0.3, body_timeout_s=0.3, max_connections=8, max_header_bytes=2000
    )
    async with running_gateway(settings) as running:
        yield running


async def connect(running: Running) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(running.url.rsplit(":", 1)[1]))


async def dribble(running: Running, first: bytes, then: bytes) -> bytes:
    """Send `first`, then `then` again and again, until the server hangs up; what it had said."""
    reader, writer = await connect(running)
    writer.write(first)
    said = b""
    async with asyncio.timeout(30):
        while True:
            try:
                async with asyncio.timeout(0.05):
                    part = await reader.read(65536)
            except TimeoutError:
                writer.write(then)
                continue
            except ConnectionError:
                break
            if not part:
                break
            said += part
    writer.close()
    return said


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"", b""),
        (b"", b"\r\n"),
        (b"POST /", b"a"),
        (HEAD + b"x-slow: ", b"a"),
        (b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /", b"h"),
        (b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", b"\r\n"),
        (b"POST /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999\r\n\r\n", b"x"),
    ],
    ids=["silent", "blank lines", "a line", "a header", "a second request", "idle", "a body that nobody wants"],
)
async def test_who_dribbles_is_cut(strict: Running, first: bytes, then: bytes) -> None:
    said = await dribble(strict, first, then)
    assert (b"HTTP/1.1" in said) == (b"healthz" in first)
    assert (await strict.embed(input="still there?")).status_code == 200


async def test_a_body_has_its_own_time(strict: Running) -> None:
    """However long the request may take."""
    said = await dribble(strict, HEAD + b"content-length: 100\r\nx-shoal-timeout: 1000\r\n\r\n", b"x")
    assert said.startswith(b"HTTP/1.1 504 ")
    assert b"0.3 s" in said


async def test_a_request_under_way_is_never_cut(strict: Running) -> None:
    strict.worker.is_holding = True
    reply = await strict.http.post(
        "/v1/embed", json={"model": "plain", "input": "x"}, headers={"x-shoal-timeout": "2.5"}
    )
    assert reply.status_code == 504  # its own deadline ended it, not the connection's


async def test_who_is_not_answered_in_time_at_a_shutdown_is_told(strict: Running) -> None:
    strict.worker.is_holding = True
    asked = asyncio.create_task(strict.embed(input="x"))
    await strict.worker.wait_for(lambda: len(strict.worker.held) == 1)
    await strict.server.stop(0.2, strict.gateway.refuse_open)
    reply = await asked
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "not_ready")
    assert "shutting down" in reply.json()["error"]["message"]


async def test_a_client_that_reads_nothing_is_cut(strict: Running) -> None:
    reader, writer = await connect(strict)
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 1000)
    connections = strict.server._server.server_state.connections
    async with asyncio.timeout(60):
        while writer.get_extra_info("sockname") in [connection.client for connection in connections]:
            assert (await strict.embed(input="the others")).status_code == 200
    writer.close()


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"".join(b"x-%d: a\r\n" % number for number in range(120)), "headers; the limit is 100"),
        (b"x-large: " + b"a" * 3000 + b"\r\n", "the limit is 2000"),
        (b"x-small: a\r\n" * 5000, "the limit is"),
    ],
)
async def test_heads_have_limits(strict: Running, head: bytes, words: str) -> None:
    said = await dribble(strict, HEAD + head + b"content-length: 0\r\n\r\n", b"")
    status, _, rest = said.partition(b"\r\n")
    assert status == b"HTTP/1.1 431 Request Header Fields Too Large"
    assert words in json.loads(rest.partition(b"\r\n\r\n")[2])["error"]["message"]
    endless = await dribble(strict, b"GET /healthz HTTP/1.1\r\n", head)
    assert endless.startswith(b"HTTP/1.1 431 ")
    line = await dribble(strict, b"GET /" + b"a" * 4000 + b" HTTP/1.1\r\n\r\n", b"")
    assert line.startswith(b"HTTP/1.1 431 ")


async def test_a_head_at_the_limit_passes(strict: Running) -> None:
    padding = {"x-padding": "a" * 1500}
    reply = await strict.http.post("/v1/embed", json={"model": "plain", "input": "y" * 9000}, headers=padding)
    assert reply.status_code == 200


async def test_connections_have_a_limit(strict: Running) -> None:
    held = [await connect(strict) for _ in range(8)]
    reader, writer = await connect(strict)
    async with asyncio.timeout(20):
        said = await reader.read()
    assert said.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after" in said
    assert b"the limit" in said
    for _, one in [*held, (reader, writer)]:
        one.close()
    async with asyncio.timeout(20):
        while True:
            try:
                if (await strict.embed(input="again")).status_code == 200:
                    break
            except httpx.TransportError:
                pass


JSON_ROUTES = ["/v1/embeddings", "/v2/embed", "/cohere/v1/rerank", "/jina/v1/embeddings", "/voyage/v1/rerank"]
JSON_ROUTES += ["/embed", "/rerank", "/predict", "/embed_sparse"]
DEEP = {
    "json": b'{"model":"plain","input":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "json, another field": b'{"model":"plain","input":"x","extra":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    "json, no object": b"[" * 100_000,
    "json, documents": b'{"model":"plain","query":"q","documents":[' + b'{"text":' * 100_000,
    "msgpack": b"\x82\xa5model\xa5plain\xa5input" + b"\x91" * 100_000 + b"\x01",
    "msgpack, another field": b"\x83\xa5model\xa5plain\xa5input\xa1x\xa5extra" + b"\x81\xa1a" * 100_000 + b"\x01",
}


async def test_deep_bodies_are_400() -> None:
    async with running_gateway(GatewaySettings(port=0)) as running:
        for name, body in DEEP.items():
            kind = "application/msgpack" if name.startswith("msgpack") else "application/json"
            for route in ["/v1/embed", "/v1/rerank", "/v1/classify", *(JSON_ROUTES if "json" in name else [])]:
                reply = await running.http.post(route, content=body, headers={"content-type": kind})
                assert reply.status_code in (400, 422), (name, route, reply.status_code)
                assert (await running.embed(input="fine")).status_code == 200


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def files(directory: Path, authority: trustme.CA, host: str = "localhost") -> dict[str, str]:
    """Certificate and key as settings."""
    certificate = authority.issue_cert(host)
    paths = {"tls_cert": directory / "cert.pem", "tls_key": directory / "key.pem"}
    paths["tls_cert"].write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(str(paths["tls_key"]))
    return {name: str(path) for name, path in paths.items()}


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def get(url: str, context: ssl.SSLContext) -> httpx.Response:
    async with httpx.AsyncClient(verify=context, timeout=20) as http:
        return await http.get(url)


async def serve(running: Running, **settings: Any) -> tuple[Server, str]:
    """The same gateway once more, with other settings."""
    server = Server(running.gateway.app, GatewaySettings(port=0, **settings))
    return server, f"https://localhost:{await server.start()}/readyz"


@SESSION
async def test_tls(shared: Running, tmp_path: Path, authority: trustme.CA) -> None:
    server, url = await serve(shared, **files(tmp_path, authority))
    assert (await get(url, trusting(authority))).status_code == 200
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        await get(url, ssl.create_default_context())
    await server.stop(1.0)


@SESSION
async def test_a_new_certificate_is_shown_without_a_restart(
    shared: Running, tmp_path: Path, authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    server, url = await serve(shared, **files(tmp_path, authority))
    successor = trustme.CA()
    paths = files(tmp_path, successor)
    async with asyncio.timeout(30):
        while True:
            try:
                await get(url, trusting(successor))
                break
            except httpx.ConnectError:
                pass
    write(paths["tls_key"], b"broken")
    async with asyncio.timeout(30):
        while "stays as it was" not in caplog.text:
            assert (await get(url, trusting(successor))).status_code == 200
    assert (await get(url, trusting(successor))).status_code == 200
    await server.stop(1.0)


def write(path: str, text: bytes) -> None:
    Path(path).write_bytes(text)


@SESSION
async def test_clients_with_certificates(shared: Running, tmp_path: Path, authority: trustme.CA) -> None:
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    server, url = await serve(shared, host="0.0.0.0", tls_client_ca=str(ca), **files(tmp_path, authority))
    context = trusting(authority)
    with pytest.raises(httpx.TransportError):
        await get(url, context)
    authority.issue_cert("client@example.org").configure_cert(context)
    assert (await get(url, context)).status_code == 200
    await server.stop(1.0)


@SESSION
@pytest.mark.parametrize("missing", ["tls_cert", "tls_key", "tls_client_ca"])
async def test_files_that_are_no_certificates(
    shared: Running, tmp_path: Path, authority: trustme.CA, missing: str
) -> None:
    paths = files(tmp_path, authority) | {missing: str(tmp_path / "nothing.pem")}
    with pytest.raises(InvalidRequest, match=r"nothing\.pem"):
        await serve(shared, **paths)
