"""Embedding through both clients: what is sent, what comes back, and in which order."""

from __future__ import annotations

import numpy as np
import pytest

import shoal
from client.wire_server import DIMENSIONS, Meeting, WireServer, answer, refuse_text, vector_of


async def test_texts_become_vectors(server: WireServer, connect):
    result = await connect().embed(["first", "second"])
    np.testing.assert_array_equal(result.vectors, [vector_of("first"), vector_of("second")])
    assert result.vectors.dtype == np.float32
    assert (len(result), result.model, result.dimensions) == (2, "tiny", DIMENSIONS)
    assert (result.num_tokens, result.total_tokens, result.truncated) == ([5, 6], 11, [False, False])
    assert result.times == {"queue_ms": 1.0, "total_ms": 2.0}
    assert result.request_ids == [server.received[0][1]["x-request-id"]]


async def test_a_result_is_shown_in_a_line(connect):
    result = await connect().embed(["first", "second"])
    assert repr(result) == f"<EmbedResult of tiny: 2 x {DIMENSIONS} float32, 11 tokens>"


@pytest.mark.parametrize("texts", [None, 3])
async def test_what_is_no_collection_is_refused_by_type(connect, texts: object):
    with pytest.raises(TypeError, match=rf"^input is a {type(texts).__name__}; it must be a text"):
        await connect().embed(texts)


async def test_result_may_be_changed_in_place(connect):
    result = await connect().embed(["text"])
    result.vectors[0] /= 2
    np.testing.assert_array_equal(result.vectors[0], vector_of("text") / 2)


async def test_a_lone_string_is_one_text(connect):
    result = await connect().embed("abc")
    np.testing.assert_array_equal(result.vectors, [vector_of("abc")])


async def test_token_ids(server: WireServer, connect):
    result = await connect().embed([[1, 2, 3], [4]], input_tokenizer="tiny")
    np.testing.assert_array_equal(result.vectors, [vector_of([1, 2, 3]), vector_of([4])])
    assert server.received[0][0]["input_tokenizer"] == "tiny"


@pytest.mark.parametrize(
    ("dtype", "stored", "bound"),
    [("float16", np.float16, 1e-3), ("int8", np.int8, 0.02), ("binary", np.uint8, None)],
)
async def test_small_dtypes_decode_to_float32(connect, dtype: str, stored: type, bound: float | None):
    texts = [f"text {number}" for number in range(5)]
    expected = np.stack([vector_of(text) for text in texts])
    result = await connect(batch_items=2).embed(texts, dtype=dtype)
    assert result.stored.dtype == stored
    assert result.vectors.dtype == np.float32
    assert result.vectors.shape == (5, DIMENSIONS)
    if bound is None:
        assert result.stored.shape == (5, 2)
        expected = np.sign(expected) * np.abs(expected).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(result.vectors, expected, atol=bound or 1e-6)


async def test_options_travel_and_those_not_given_do_not(server: WireServer, connect):
    client = connect(api_key="secret")
    await client.embed(["x"], "little", dimensions=4, prompt_name="query", normalize=False, truncate=True)
    await client.embed(["x"], "little", prompt="find: ", truncation_side="left", timeout_s=7)
    (first, headers), (second, later) = server.received
    assert first == {
        "model": "little",
        "input": ["x"],
        "dimensions": 4,
        "prompt_name": "query",
        "normalize": False,
        "truncate": True,
        "dtype": "float32",
    }
    assert second == {
        "model": "little",
        "input": ["x"],
        "prompt": "find: ",
        "truncation_side": "left",
        "dtype": "float32",
    }
    assert headers["authorization"] == "Bearer secret"
    assert 59 < float(headers["x-shoal-timeout"]) <= 60
    assert 6 < float(later["x-shoal-timeout"]) <= 7


async def test_long_lists_are_split_and_come_back_in_order(server: WireServer, connect):
    texts = [f"{number} " + "x" * (number * 37 % 200) for number in range(1000)]
    result = await connect(batch_items=64, batch_bytes=4000).embed(texts)
    np.testing.assert_array_equal(result.vectors, [vector_of(text) for text in texts])
    assert result.num_tokens == [len(text) for text in texts]
    assert len(server.received) == len(result.request_ids) == len(set(result.request_ids)) > 1000 / 64
    for body, _ in server.received:
        assert len(body["input"]) <= 64
        assert sum(len(text) for text in body["input"]) <= 4000
    assert result.times["total_ms"] == 2.0 * len(server.received)


async def test_so_many_requests_at_once_and_no_more(server: WireServer, connect):
    meeting = Meeting(3)
    server.always = meeting
    result = await connect(batch_items=1, concurrency=3).embed([str(number) for number in range(12)])
    np.testing.assert_array_equal(result.vectors, [vector_of(str(number)) for number in range(12)])
    assert meeting.most == 3


async def test_error_counts_from_the_start_of_the_list(server: WireServer, connect):
    server.always = refuse_text("text 707")
    with pytest.raises(shoal.InvalidRequest) as caught:
        await connect(batch_items=100).embed([f"text {number}" for number in range(1000)])
    assert caught.value.param == "input[707]"
    assert caught.value.message == "input[707] is bad."


@pytest.mark.parametrize(
    ("texts", "param"),
    [
        ([], "input"),
        (["fine", 5], "input[1]"),
        (["fine", None], "input[1]"),
        (["fine", b"bytes"], "input[1]"),
        (["a", "b", "c", "lone surrogate \ud800"], "input[3]"),
        (["a", "b", "c", [1, object()]], "input[3]"),
    ],
)
async def test_what_is_no_text_is_refused_by_name(server: WireServer, connect, texts: list, param: str):
    with pytest.raises(shoal.InvalidRequest) as caught:
        await connect(batch_items=2).embed(texts)
    assert caught.value.param == param
    assert param in str(caught.value) or "empty" in str(caught.value)


@pytest.mark.parametrize("name", ["concurrency", "batch_items", "batch_bytes"])
def test_limits_below_one_are_refused(connect, name: str):
    with pytest.raises(shoal.InvalidRequest, match=name):
        connect(**{name: 0})


async def test_model_need_not_be_named_where_there_is_one(server: WireServer, connect):
    server.cards = [shoal.ServedModel("one", ("embed",), 4, 8), shoal.ServedModel("two", ("embed",), 4, 8)]
    client = connect()
    with pytest.raises(shoal.InvalidRequest, match="serves one, two") as caught:
        await client.embed("x")
    assert caught.value.param == "model"
    server.cards = []
    with pytest.raises(shoal.InvalidRequest, match="serves none yet"):
        await client.embed("x")
    server.cards = [shoal.ServedModel("only", ("embed",), 4, 8)]
    assert (await client.embed("x")).model == "only"


async def test_models(server: WireServer, connect):
    assert await connect().models() == server.cards


@pytest.mark.parametrize("content", [b"<html>hello</html>", b"\x83", b""])
async def test_an_answer_of_something_else_is_said_to_be(server: WireServer, connect, content: bytes):
    server.always = answer(content, "text/html")
    with pytest.raises(shoal.InternalError, match=r"text/html.*not an answer of Shoal's"):
        await connect().embed("x", "tiny")


async def test_parts_of_different_models_are_never_joined(server: WireServer, connect):
    async def other_model(request, body):
        body["model"] += " 2"

    server.script.append(other_model)
    with pytest.raises(shoal.InternalError, match="different models"):
        await connect(batch_items=1).embed(["a", "b"], "tiny")
