"""Bodies that are wrong: each gets its own clear answer in its API's shape, and the gateway lives on (C13, C27)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from gateway.conftest import Running
from shoal.gateway.http import timeout_s

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def running(shared: Running) -> Running:
    shared.worker.chunks.clear()
    return shared


MODEL = '"model":"org/plain-model",'
ROUTES = ["/v1/embeddings", "/v1/embed"]
SECRET = "a secret text"

BROKEN = {
    "{}": (400, "model"),
    '{"input":"x"}': (400, "model"),
    '{"input":"x","model":null}': (400, "model"),
    '{"input":"x","model":""}': (400, "model"),
    '{"input":"x","model":5}': (400, "model"),
    f'{{{MODEL}"user":"me"}}': (400, "input"),
    f'{{{MODEL}"input":[]}}': (400, "input"),
    f'{{{MODEL}"input":[ ]}}': (400, "input"),
    f'{{{MODEL}"input":null}}': (400, "input"),
    f'{{{MODEL}"input":5}}': (400, "input"),
    f'{{{MODEL}"input":true}}': (400, "input"),
    f'{{{MODEL}"input":{{"text":"x"}}}}': (400, "input"),
    f'{{{MODEL}"input":["a",5]}}': (400, "input[1]"),
    f'{{{MODEL}"input":["a",null]}}': (400, "input[1]"),
    f'{{{MODEL}"input":["a","b",["c"],"d"]}}': (400, "input[2]"),
    f'{{{MODEL}"input":[null]}}': (400, "input[0]"),
    f'{{{MODEL}"input":[["a"]]}}': (400, "input[0]"),
    f'{{{MODEL}"input":[[]]}}': (400, "input[0]"),
    f'{{{MODEL}"input":[[1],[[2]]]}}': (400, "input[1]"),
    f'{{{MODEL}"input":[[1],2]}}': (400, "input[1]"),
    f'{{{MODEL}"input":[1,2.5]}}': (400, "input[1]"),
    f'{{{MODEL}"input":[1,"a"]}}': (400, "input[1]"),
    f'{{{MODEL}"input":[-1]}}': (400, "input[0]"),
    f'{{{MODEL}"input":"x","dimensions":"4"}}': (400, "dimensions"),
    f'{{{MODEL}"input":"x","dimensions":4.5}}': (400, "dimensions"),
    f'{{{MODEL}"input":"x","dimensions":1{"0" * 400}}}': (400, "dimensions"),
    f'{{{MODEL}"input":"x","truncate":"yes"}}': (400, "truncate"),
    f'{{{MODEL}"input":"x","truncation_side":"middle"}}': (400, "truncation_side"),
    f'{{{MODEL}"input":NaN}}': (400, None),
    f'{{{MODEL}"input":["fine","\\ud800"]}}': (400, "input[1]"),
    f'{{{MODEL}"input":"\\udc00 is the second half"}}': (400, "input[0]"),
    f'{{{MODEL}"input":"x"}} trailing': (400, None),
    f'{{{MODEL}"input":{"[" * 50_000}{"]" * 50_000}}}': (400, None),
    f'{{{MODEL}"input":"x","more":{"[" * 50_000}}}': (400, None),
    "[]": (400, None),
    "5": (400, None),
    "null": (400, None),
    "{": (400, None),
    "": (400, None),
    "\ufeff{}": (400, None),
    '{"input":"x","model":"gpt-4o"}': (404, "model"),
    '{"input":"x","model":"org/mute"}': (400, "model"),
    f'{{{MODEL}"input":{json.dumps(["x"] * 101)}}}': (413, "input"),
    f'{{{MODEL}"input":[{"[1]," * 101}[1]]}}': (413, "input"),
    f'{{{MODEL}"input":["x","{"y" * 10_001}"]}}': (413, "input[1]"),
    f'{{{MODEL}"input":[{"1," * 10_000}1]}}': (413, "input[0]"),
}


@pytest.mark.parametrize("route", ROUTES)
async def test_broken_bodies(running: Running, route: str) -> None:
    for body, (status, param) in BROKEN.items():
        reply = await running.http.post(route, content=body.encode(), headers={"content-type": "application/json"})
        assert reply.status_code == status, body[:80]
        assert reply.headers["content-type"] == "application/json"
        error = reply.json()["error"]
        assert error["param"] == param, body[:80]
        assert 0 < len(error["message"]) < 600, body[:80]
        expected = {"message", "type", "param", "code"}
        assert set(error) == (expected if route == "/v1/embeddings" else expected - {"type"} | {"hint", "request_id"})
        assert (await running.embed(route, input="still there?")).status_code == 200
    assert not [chunk for chunk in running.worker.chunks if chunk.num_items != 1]


@pytest.mark.parametrize(
    ("value", "status", "param"),
    [
        (None, 400, "input"),
        ([], 400, "input"),
        (5, 400, "input"),
        ({"text": "x"}, 400, "input"),
        (b"bytes", 400, "input"),
        (["a", 5], 400, "input[1]"),
        (["a", b"bytes"], 400, "input[1]"),
        ([["a"]], 400, "input[0]"),
        ([[]], 400, "input[0]"),
        (["x"] * 101, 413, "input"),
        (["y" * 10_001], 413, "input[0]"),
        ([[1] * 10_001], 413, "input[0]"),
    ],
)
async def test_broken_messagepack(running: Running, value: Any, status: int, param: str) -> None:
    body = msgspec.msgpack.encode({"model": "plain", "input": value, "input_tokenizer": "plain"})
    reply = await running.http.post("/v1/embed", content=body, headers={"content-type": "application/msgpack"})
    error = msgspec.msgpack.decode(reply.content)["error"]
    assert (reply.status_code, error["param"]) == (status, param)


@pytest.mark.parametrize(
    "body",
    [
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\x81\xa5input\xdd\xff\xff\xff\xff",
        b"\x91" * 100_000,
        b"\x82\xa5model\xa5plain\xa5input" + b"\x91" * 900 + b"\xa1x",
        b"\x82\xa5model\xa5plain\xa5input\xdd\x00\x02\x00\x00" + b"\xc0" * 0x20000,
    ],
)
async def test_messagepack_bombs(running: Running, body: bytes) -> None:
    reply = await running.http.post("/v1/embed", content=body, headers={"content-type": "application/msgpack"})
    assert reply.status_code in (400, 413)
    assert msgspec.msgpack.decode(reply.content)["error"]["message"]
    assert (await running.embed(input="fine")).status_code == 200


async def test_last_of_two_equal_keys_counts(running: Running) -> None:
    body = b'{"model":"nope","model":"plain","input":5,"input":"x"}'
    headers = {"content-type": "application/json"}
    assert (await running.http.post("/v1/embeddings", content=body, headers=headers)).status_code == 200


async def test_names_of_what_is_allowed(running: Running) -> None:
    error = (await running.embed(input="x", encoding_format="md5")).json()["error"]
    assert error["param"] == "encoding_format"
    assert all(word in error["message"] for word in ("md5", "float", "base64"))
    missing = (await running.http.post("/v1/embeddings", json={"input": "x"})).json()["error"]
    assert "org/plain-model" in missing["message"]
    wrong = (await running.embed(model="org/mute", input="x")).json()["error"]
    assert wrong["code"] == "unsupported_operation"


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("application/x-www-form-urlencoded", 415),
        ("text/plain", 415),
        ("application/msgpack", 415),
        ("multipart/form-data; boundary=x", 415),
    ],
)
async def test_content_type(running: Running, content_type: str, status: int) -> None:
    body = b'{"model":"plain","input":"x"}'
    reply = await running.http.post("/v1/embeddings", content=body, headers={"content-type": content_type})
    assert reply.status_code == status
    if status == 415:
        assert reply.json()["error"]["code"] == "unsupported_media_type"
        assert "application/json" in reply.json()["error"]["message"]


async def test_compressed_bodies_are_refused(running: Running) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    reply = await running.http.post("/v1/embeddings", content=b"\x1f\x8b", headers=headers)
    assert (reply.status_code, reply.json()["error"]["param"]) == (415, "Content-Encoding")


async def test_body_limit_by_its_announced_length(running: Running) -> None:
    reply = await running.http.post("/v1/embed", content=b"x" * 200_001, headers={"content-type": "application/json"})
    assert reply.status_code == 413
    assert "200000" in reply.json()["error"]["message"]


async def test_body_limit_while_reading(running: Running) -> None:
    """A body without an announced length is refused as soon as it crosses the limit, not when it has ended."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(running.url.rsplit(":", 1)[1]))
    writer.write(
        b"POST /v1/embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    for _ in range(5):
        writer.write(b"c350\r\n" + b" " * 50_000 + b"\r\n")
    status_line = await reader.readline()
    writer.close()
    assert b" 413 " in status_line


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "-inf", "1e-999", "1e6", "soon", "1 2", "", "100000"])
async def test_a_wrong_timeout_header(running: Running, text: str) -> None:
    headers = {"x-shoal-timeout": text}
    reply = await running.http.post("/v1/embeddings", json={"model": "plain", "input": "x"}, headers=headers)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "X-Shoal-Timeout")


NO_IDS = {
    '["a",1]': ("input[1]", "a number among texts"),
    '[[1],["a"]]': ("input[1]", "holds a text among token ids"),
    "[[1],[2,-1]]": ("input[1]", "holds a negative number"),
    "[[1, 2 ,5.5]]": ("input[0]", "holds a number that is no integer"),
    '[[1],"a"]': ("input[1]", "a text among lists of token ids"),
    "[-1]": ("input[0]", "is a negative number"),
    "[5.5]": ("input[0]", "is a number that is no integer"),
    "[1,2,null]": ("input[2]", "is null among token ids"),
}


@pytest.mark.parametrize("text", NO_IDS)
async def test_what_is_no_token_id_is_named_as_what_it_is(running: Running, text: str) -> None:
    param, words = NO_IDS[text]
    body = {"model": "plain", "input": json.loads(text)}
    headers = {"content-type": "application/msgpack", "accept": "application/json"}
    for reply in (
        await running.http.post("/v1/embed", json=body),
        await running.http.post("/v1/embed", content=msgspec.msgpack.encode(body), headers=headers),
    ):
        error = reply.json()["error"]
        assert (reply.status_code, error["param"]) == (400, param)
        assert words in error["message"]


async def test_a_missing_input_is_called_missing(running: Running) -> None:
    for route, field in (("/v1/embeddings", "input"), ("/v1/embed", "input")):
        error = (await running.http.post(route, json={"model": "plain"})).json()["error"]
        assert (error["message"], error["param"]) == (f"The field {field} is missing.", field)


@pytest.mark.parametrize("text", ["1e1", "2.5E+1", "+30", ".5e2", "86400"])
async def test_timeout_header(running: Running, text: str) -> None:
    headers = {"x-shoal-timeout": text}
    reply = await running.http.post("/v1/embeddings", json={"model": "plain", "input": "x"}, headers=headers)
    assert reply.status_code == 200
    chunk = running.worker.chunks[-1]
    assert chunk.deadline - chunk.published_at == pytest.approx(float(text), abs=1)


async def test_blanks_around_the_timeout_mean_nothing() -> None:
    assert timeout_s({b"x-shoal-timeout": b" 2.5\t"}, 60.0) == 2.5


async def test_a_body_that_stalls_is_504_and_ends_the_connection(running: Running) -> None:
    """The time allowed starts with the headers."""
    head, body = await exchange(running, HEAD + b'content-length: 100\r\nx-shoal-timeout: 0.1\r\n\r\n{"input":')
    assert b" 504 " in head.splitlines()[0]
    error = json.loads(body)["error"]
    assert error["code"] == "deadline_exceeded"
    assert "0.1 s" in error["message"]


HEAD = b"POST /v1/embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


async def exchange(running: Running, sent: bytes) -> tuple[bytes, bytes]:
    """Head and body of all that comes back until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(running.url.rsplit(":", 1)[1]))
    writer.write(sent)
    async with asyncio.timeout(20):
        reply = await reader.read()
    writer.close()
    head, _, body = reply.partition(b"\r\n\r\n")
    return head, body


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        HEAD + b"content-length: many\r\n\r\n",
        HEAD + b"content-length: -1\r\n\r\n",
        HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        HEAD + b"transfer-encoding: chunked\r\n\r\nno number\r\n",
    ],
)
async def test_what_is_no_http_gets_an_error_in_json(running: Running, sent: bytes) -> None:
    head, body = await exchange(running, sent)
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json" in head.lower()
    error = json.loads(body)["error"]
    assert error["code"] == "invalid_request"
    assert "HTTP" in error["message"]
    assert (await running.embed(input="still there?")).status_code == 200


async def test_an_upgrade_is_ignored_without_advice(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    upgrade = {"connection": "Upgrade", "upgrade": "websocket"}
    assert (await running.http.get("/healthz", headers=upgrade)).status_code == 200
    assert "uvicorn" not in caplog.text


async def test_a_fault_of_ours_is_a_500_without_user_text(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def break_down(*args: Any, **fields: Any) -> None:
        raise KeyError(SECRET)

    monkeypatch.setattr("shoal.gateway.operations.check_tokens", break_down)
    for route in ROUTES:
        reply = await running.http.post(
            route, json={"model": "plain", "input": SECRET}, headers={"x-request-id": "find-me"}
        )
        assert reply.status_code == 500
        assert reply.json()["error"]["code"] == "internal_error"
        assert "secret" not in reply.text
    assert "find-me" in caplog.text
    assert "KeyError" in caplog.text
    assert "secret" not in caplog.text
