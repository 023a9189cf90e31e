"""What a client may send, and what it gets: every answer in the API's shape, and the server lives on."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from e2e.conftest import Fleet, cosines
from e2e.running import MODEL, assert_alive
from shoal.bench.generator import send_load
from shoal.bench.plan import Arrivals, Load
from shoal.bench.targets import Target
from shoal.types import EmbedReply


@pytest.fixture(autouse=True)
def _still_alive(fleet: Fleet) -> Any:
    yield
    assert_alive(fleet.url, MODEL)


BROKEN = {
    "no model": ({}, "model"),
    "no input": ({"model": MODEL}, "input"),
    "empty list": ({"model": MODEL, "input": []}, "input"),
    "null": ({"model": MODEL, "input": None}, "input"),
    "a number": ({"model": MODEL, "input": 5}, "input"),
    "mixed": ({"model": MODEL, "input": ["a", 5]}, "input[1]"),
    "nested text": ({"model": MODEL, "input": [["a"]]}, "input[0]"),
    "object": ({"model": MODEL, "input": {"text": "a"}}, "input"),
    "not an object": ([], None),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("route", ["/v1/embeddings", "/v1/embed"])
def test_broken_bodies(fleet: Fleet, case: str, route: str) -> None:
    """C13."""
    body, param = BROKEN[case]
    reply = httpx.post(fleet.url + route, json=body, timeout=20)
    assert reply.status_code == 400
    assert reply.headers["content-type"].startswith("application/json")
    error = reply.json()["error"]
    assert error["message"]
    if param:
        assert error["param"] == param


@pytest.mark.parametrize(
    ("content", "content_type", "status"),
    [
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b'{"model": "%b", "input": "\xff"}' % MODEL.encode(), "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"input=hello", "application/x-www-form-urlencoded", 415),
        (b"<xml/>", "application/xml", 415),
    ],
)
def test_broken_bytes(fleet: Fleet, content: bytes, content_type: str, status: int) -> None:
    reply = httpx.post(f"{fleet.url}/v1/embeddings", content=content, headers={"content-type": content_type})
    assert reply.status_code == status
    assert reply.json()["error"]["message"]


def test_lone_surrogate_names_its_item(fleet: Fleet) -> None:
    body = b'{"model": "%s", "input": ["fine", "\\ud800"]}' % MODEL.encode()
    reply = httpx.post(f"{fleet.url}/v1/embeddings", content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 400
    assert "input[1]" in (reply.json()["error"]["param"] or "")


def test_base64_is_the_same_vector(fleet: Fleet) -> None:
    """C23."""
    texts = ["one", "two words", "three more words"]
    floats = fleet.embed(MODEL, texts, encoding_format="float")
    rows = fleet.post(MODEL, texts, encoding_format="base64").json()["data"]
    decoded = np.stack([np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in rows])
    assert decoded.shape == (3, 384)
    np.testing.assert_array_max_ulp(decoded, floats, maxulp=1)
    refused = fleet.post(MODEL, texts, encoding_format="md5")
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "encoding_format"


def test_null_and_unknown_fields(fleet: Fleet) -> None:
    """C24."""
    plain = fleet.embed(MODEL, "x")
    same = fleet.embed(MODEL, "x", encoding_format=None, dimensions=None, user=None, extra=1)
    assert np.array_equal(plain, same)


@pytest.mark.parametrize("dimensions", [256, 0, -1, 385])
def test_dimensions_are_refused_on_a_fixed_model(fleet: Fleet, dimensions: int) -> None:
    """C26: only matryoshka models may be cut; a number out of range never."""
    reply = fleet.post(MODEL, "x", dimensions=dimensions)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "dimensions"


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_dimensions_of_a_matryoshka_model(fleet: Fleet, encoding: str) -> None:
    """C26: cut, then renormalised; `normalize: false` leaves the cut vector as it is."""
    whole = fleet.embed("tiny-matryoshka", ["x", "some other text"])
    cut = whole[:, :16] / np.linalg.norm(whole[:, :16], axis=1, keepdims=True)
    rows = fleet.post("tiny-matryoshka", ["x", "some other text"], dimensions=16, encoding_format=encoding).json()[
        "data"
    ]
    vectors = [row["embedding"] for row in rows]
    if encoding == "base64":
        vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in vectors]
    np.testing.assert_allclose(vectors, cut, atol=1e-6)
    raw = fleet.embed("tiny-matryoshka", ["x", "some other text"], dimensions=16, normalize=False)
    np.testing.assert_allclose(raw, whole[:, :16], atol=1e-6)
    for dimensions in (0, -1, 33):
        assert fleet.post("tiny-matryoshka", "x", dimensions=dimensions).status_code == 400


def test_full_dimensions_are_as_absent(fleet: Fleet) -> None:
    assert np.array_equal(fleet.embed(MODEL, "x", dimensions=384), fleet.embed(MODEL, "x"))


def test_unknown_model_names_near_ones(fleet: Fleet) -> None:
    """C27."""
    reply = fleet.post("sentence-transformers/all-MiniLM-L6-v3", "x")
    error = reply.json()["error"]
    assert reply.status_code == 404
    assert error["code"] == "model_not_found"
    assert MODEL in error["message"]
    assert set(error) == {"message", "type", "param", "code"}
    assert fleet.post("gpt-4o", "x").status_code == 404


def test_unknown_route_and_method(fleet: Fleet) -> None:
    for reply, status in (
        (httpx.post(f"{fleet.url}/v1/embedings", json={}), 404),
        (httpx.get(f"{fleet.url}/v1/embeddings"), 405),
    ):
        assert reply.status_code == status
        assert reply.json()["error"]["message"]


def test_usage_counts_tokens_really_run(fleet: Fleet, reference: Any) -> None:
    """C28: special tokens included, after truncation."""
    tokenizer = reference(fleet.directories[MODEL]).tokenizer
    texts = ["one", "two words and more", "北京是中国的首都", "word " * 2000]
    lengths = [len(ids) for ids in tokenizer(texts, truncation=True, max_length=256)["input_ids"]]
    usage = fleet.post(MODEL, texts).json()["usage"]
    assert usage == {"prompt_tokens": sum(lengths), "total_tokens": sum(lengths)}
    for text, length in zip(texts, lengths, strict=True):
        assert fleet.post(MODEL, text).json()["usage"]["prompt_tokens"] == length
    assert fleet.post(MODEL, texts, route="/v1/embed").json()["num_tokens"] == lengths


def test_token_ids_need_their_vocabulary_named(fleet: Fleet, reference: Any) -> None:
    """Ids of another vocabulary look like ids of this one: wrong vectors are one guess away."""
    ids = reference(fleet.directories[MODEL]).tokenizer("hello shoal", add_special_tokens=False)["input_ids"]
    for sent in (ids, [ids, ids]):
        refused = fleet.post(MODEL, sent)
        assert refused.status_code == 400
        assert "check_embedding_ctx_length" in json.dumps(refused.json())
        assert "input_tokenizer" in json.dumps(refused.json())
    accepted = fleet.embed(MODEL, ids, input_tokenizer=MODEL)
    assert cosines(accepted, fleet.embed(MODEL, "hello shoal")).min() > 0.9999
    beyond = fleet.post(MODEL, [5, 10**9], input_tokenizer=MODEL)
    assert beyond.status_code == 400


@pytest.mark.parametrize("route", ["/v1/embeddings", "/v1/embed"])
@pytest.mark.parametrize("as_list", [False, True])
def test_one_truncation_policy(fleet: Fleet, reference: Any, route: str, as_list: bool) -> None:
    """C19: true cuts and says so, false refuses with counts, absent is the server's default, left keeps the tail."""
    start, end = "alpha beta gamma " * 200, "omega psi chi " * 200
    text = start + end
    sent: Any = [text] if as_list else text

    def first(reply: httpx.Response) -> list[float]:
        body = reply.json()
        return body["data"][0]["embedding"] if "data" in body else body["embeddings"][0]

    cut, absent = fleet.post(MODEL, sent, route, truncate=True), fleet.post(MODEL, sent, route)
    for reply in (cut, absent):
        assert reply.status_code == 200
        if route == "/v1/embeddings":
            assert reply.headers["x-shoal-truncated"] == "1"
        else:
            assert reply.json()["truncated"] == [True]
        assert first(reply) == pytest.approx(fleet.embed(MODEL, start)[0], abs=1e-5)
    refused = fleet.post(MODEL, sent, route, truncate=False)
    assert refused.status_code == 400
    message = refused.json()["error"]["message"]
    assert "256" in message
    assert str(len(reference(fleet.directories[MODEL]).tokenizer(text)["input_ids"])) in message
    left = fleet.post(MODEL, sent, route, truncation_side="left")
    assert first(left) == pytest.approx(fleet.embed(MODEL, end, truncation_side="left")[0], abs=1e-5)


@pytest.mark.parametrize("order", [0, 1])
def test_a_text_to_be_cut_holds_nobody(fleet: Fleet, order: int) -> None:
    """C21 (a), (c)."""
    texts = ["short", "long " * 3000][:: -1 if order else 1]
    vectors = fleet.embed(MODEL, texts)
    assert cosines(vectors, np.stack([fleet.embed(MODEL, text)[0] for text in texts])).min() > 0.9999


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "binary"])
def test_native_messagepack(fleet: Fleet, dtype: str) -> None:
    texts = ["one", "two", "three"]
    expected = fleet.embed(MODEL, texts)
    body = msgspec.msgpack.encode({"model": MODEL, "input": texts, "dtype": dtype})
    headers = {"content-type": "application/msgpack", "accept": "application/msgpack"}
    reply = httpx.post(f"{fleet.url}/v1/embed", content=body, headers=headers)
    assert reply.status_code == 200, reply.text
    decoded = msgspec.msgpack.decode(reply.content, type=EmbedReply)
    assert decoded.dtype == dtype
    assert tuple(decoded.shape) == (3, 384)
    if dtype == "binary":
        bits = np.unpackbits(np.frombuffer(decoded.data, np.uint8).reshape(3, 48), axis=1)
        assert np.array_equal(bits == 1, expected > 0)
        return
    kind = {"float32": "<f4", "float16": "<f2", "int8": "i1"}[dtype]
    rows = np.frombuffer(decoded.data, kind).reshape(3, 384).astype(np.float32)
    if dtype == "int8":
        rows *= np.array(decoded.scales, np.float32)[:, None]
    assert cosines(rows, expected).min() > (0.999 if dtype == "int8" else 0.99999)
    assert np.abs(rows - expected).max() < {"float32": 1e-6, "float16": 1e-3, "int8": 5e-3}[dtype]


def test_timing_and_request_id(fleet: Fleet) -> None:
    reply = httpx.post(
        f"{fleet.url}/v1/embeddings", json={"model": MODEL, "input": "x"}, headers={"x-request-id": "my-own-id-7"}
    )
    assert reply.headers["x-request-id"] == "my-own-id-7"
    for stage in ("queue", "tokenize", "inference", "total"):
        assert stage in reply.headers["server-timing"]


def test_every_page_answers(fleet: Fleet) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/v1/models"):
        assert httpx.get(fleet.url + path).status_code == 200, path
    listed = {model["id"] for model in httpx.get(f"{fleet.url}/v1/models").json()["data"]}
    assert listed == set(fleet.directories)


def test_a_busy_device_answers_all_that_come(fleet: Fleet) -> None:
    """Eight at a time, each as soon as its last one is answered, find the device in every state of its batches."""
    requests = [["word " * length] for length in (3, 8, 14, 20, 5, 40)]
    target = Target("fleet", "shoal", fleet.url, MODEL)
    measured = send_load(Load(target, Arrivals("closed", concurrency=8), requests, 3.0))
    assert measured.num_ok > 8
    assert not measured.errors
    assert "Exception in callback" not in fleet.server.output
