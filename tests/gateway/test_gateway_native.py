"""POST /v1/embed: JSON and MessagePack, in and out, every dtype."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import numpy as np
import pytest

from gateway.answering import num_tokens, vector
from gateway.conftest import Running
from shoal.types import EmbedReply

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def running(shared: Running) -> Running:
    shared.worker.chunks.clear()
    return shared


TEXTS = ["one", "two words", "long " * 40]
EXPECTED = np.stack([vector(text) for text in TEXTS])
MSGPACK = "application/msgpack"


def decoded(data: bytes, dtype: str, scales: list[float], shape: tuple[int, int]) -> np.ndarray:
    if dtype == "binary":
        bits = np.unpackbits(np.frombuffer(data, np.uint8).reshape(shape[0], -1), axis=1)[:, : shape[1]]
        return (bits.astype(np.float32) * 2 - 1) * np.array(scales, np.float32)[:, None]
    kind = {"float32": "<f4", "float16": "<f2", "int8": "i1"}[dtype]
    rows = np.frombuffer(data, kind).reshape(shape).astype(np.float32)
    return rows * np.array(scales, np.float32)[:, None] if scales else rows


TOLERANCE = {"float32": 0.0, "float16": 1e-3, "int8": 5e-3}


def check(rows: np.ndarray, dtype: str) -> None:
    if dtype == "binary":
        assert np.array_equal(rows > 0, EXPECTED > 0)
    else:
        assert np.abs(rows - EXPECTED).max() <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "binary"])
@pytest.mark.parametrize("is_packed_in", [True, False])
async def test_messagepack_is_one_matrix(running: Running, dtype: str, is_packed_in: bool) -> None:
    fields = {"model": "plain", "input": TEXTS, "dtype": dtype}
    body = msgspec.msgpack.encode(fields) if is_packed_in else msgspec.json.encode(fields)
    headers = {"content-type": MSGPACK if is_packed_in else "application/json", "accept": MSGPACK}
    reply = await running.http.post("/v1/embed", content=body, headers=headers)
    assert reply.headers["content-type"] == MSGPACK
    read = msgspec.msgpack.decode(reply.content, type=EmbedReply)
    assert (read.model, read.dtype, read.shape) == ("org/plain-model", dtype, (3, 8))
    assert read.num_tokens == [3, 4, 16]
    assert read.truncated == [False, False, True]
    assert read.request_id == reply.headers["x-request-id"]
    check(decoded(read.data, dtype, read.scales, read.shape), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "binary"])
@pytest.mark.parametrize("encoding", ["json", "base64"])
async def test_json_reply(running: Running, dtype: str, encoding: str) -> None:
    reply = (await running.embed("/v1/embed", input=TEXTS, dtype=dtype, encoding=encoding)).json()
    assert list(reply)[:4] == ["model", "dtype", "dimensions", "embeddings"]
    assert reply["dimensions"] == 8
    scales: list[float] = reply.get("scales", [])
    assert len(scales) == (3 if dtype in ("int8", "binary") else 0)
    if encoding == "base64" or dtype == "binary":
        data = b"".join(base64.b64decode(row) for row in reply["embeddings"])
        rows = decoded(data, dtype, scales, (3, 8))
    else:
        rows = np.array(reply["embeddings"], np.float32) * (np.array(scales, np.float32)[:, None] if scales else 1)
    check(rows, dtype)
    assert reply["num_tokens"] == [3, 4, 16]
    assert reply["truncated"] == [False, False, True]
    assert reply["usage"] == {"num_tokens": 23}
    assert reply["times"] | {"total_ms": 0} == {
        "queue_ms": 1.0,
        "tokenize_ms": 2.0,
        "batch_ms": 3.0,
        "inference_ms": 4.0,
        "total_ms": 0,
    }


async def test_matrix_over_many_chunks(running: Running) -> None:
    texts = [f"text {index} {'word ' * (index % 9)}" for index in range(100)]
    body = msgspec.msgpack.encode({"model": "plain", "input": texts})
    reply = await running.http.post("/v1/embed", content=body, headers={"content-type": MSGPACK})
    read = msgspec.msgpack.decode(reply.content, type=EmbedReply)
    assert len(running.worker.chunks) > 5
    assert np.array_equal(np.frombuffer(read.data, "<f4").reshape(read.shape), np.stack([vector(t) for t in texts]))
    assert read.num_tokens == [min(num_tokens(text), 16) for text in texts]


@pytest.mark.parametrize("sent", ["alone", ["list"], [[7, 8], [9]], [7, 8, 9]])
async def test_kinds_of_input_in_messagepack(running: Running, sent: Any) -> None:
    body = msgspec.msgpack.encode({"model": "plain", "input": sent, "input_tokenizer": "plain"})
    reply = await running.http.post("/v1/embed", content=body, headers={"content-type": MSGPACK})
    read = msgspec.msgpack.decode(reply.content, type=EmbedReply)
    items = sent if isinstance(sent, list) and isinstance(sent[0], (str, list)) else [sent]
    assert np.array_equal(np.frombuffer(read.data, "<f4").reshape(-1, 8), np.stack([vector(item) for item in items]))


async def test_format_of_the_reply(running: Running) -> None:
    """Accept decides; without it, or with */*, the reply is as the request was; errors too."""
    packed, plain = msgspec.msgpack.encode({"model": "plain", "input": "x"}), b'{"model":"plain","input":"x"}'
    for content_type, body, accept, expected in (
        (MSGPACK, packed, "*/*", MSGPACK),
        (MSGPACK, packed, "application/json", "application/json"),
        ("application/json", plain, "application/x-msgpack", MSGPACK),
        ("application/json; charset=utf-8", plain, "text/html, application/json;q=0.5", "application/json"),
        (MSGPACK, b"\xc1", "*/*", MSGPACK),
        ("application/json", b"{", MSGPACK, MSGPACK),
        ("text/plain", b"{", MSGPACK, MSGPACK),
    ):
        headers = {"content-type": content_type, "accept": accept}
        reply = await running.http.post("/v1/embed", content=body, headers=headers)
        assert reply.headers["content-type"] == expected
        if reply.status_code != 200:
            decode = msgspec.msgpack.decode if expected == MSGPACK else msgspec.json.decode
            error = decode(reply.content)["error"]
            assert set(error) == {"code", "message", "param", "hint", "request_id"}
            assert error["request_id"] == reply.headers["x-request-id"]


async def test_literal_prompt(running: Running) -> None:
    reply = (await running.embed("/v1/embed", input="x", prompt="q: ")).json()
    assert np.array_equal(np.array(reply["embeddings"][0], np.float32), vector("q: x"))
    both = (await running.embed("/v1/embed", input="x", prompt="q: ", prompt_name="query")).json()["error"]
    assert both["param"] == "prompt"
    long = (await running.embed("/v1/embed", input="x", prompt="p" * 20_000)).json()["error"]
    assert "16384" in long["message"]
