"""Vectors of tokens over HTTP: what the reference gives, in each format, and rankings by them."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling

from e2e.conftest import Fleet
from e2e.running import MODEL, assert_alive
from shoal import Client
from shoal.types import EmbedReply
from tiny_models import NASTY_TEXTS, load_reference, quiet
from tiny_multivector import load_multivector, m3_outputs, token_vectors

ROUTE = "/v1/embed"
QUERY = "machine learning"
SHORT = "Paris is the capital"
LONG = "Machine learning models embed sentences into vectors, so that similar meanings lie close together. " * 20
PUNCTUATION = "... ,,, ??? ;;; ..."
DOCUMENTS = [SHORT, LONG, PUNCTUATION]


@pytest.fixture(scope="module")
def judge(fleet: Fleet) -> MultiVectorEncoder:
    return load_multivector(fleet.directories["tiny-colbert"])


def ask(fleet: Fleet, texts: str | list[str], **fields: Any) -> list[npt.NDArray[np.float32]]:
    reply = fleet.ask(ROUTE, "tiny-colbert", input=texts, outputs=["multivector"], **fields)
    assert "embeddings" not in reply
    assert reply["multivector_dimensions"] == 16
    return [np.array(rows, np.float32) for rows in reply["multivector"]]


def test_both_sides_are_those_of_the_reference(fleet: Fleet, judge: MultiVectorEncoder) -> None:
    """C34: a query has its marker and 32 vectors, a document none for punctuation, nobody any for padding."""
    texts = [*DOCUMENTS, *NASTY_TEXTS]
    for side in ("query", "document"):
        expected = token_vectors(judge, texts, side)
        rows = ask(fleet, texts, input_type=side)
        assert [len(one) for one in rows] == [len(one) for one in expected]
        np.testing.assert_allclose(np.concatenate(rows), np.concatenate(expected), atol=1e-4)
    assert [len(rows) for rows in ask(fleet, [QUERY, LONG], input_type="query")] == [32, 32]
    assert len(ask(fleet, PUNCTUATION)[0]) == 3
    (alone,) = ask(fleet, SHORT, input_type="document")
    np.testing.assert_allclose(alone, ask(fleet, DOCUMENTS)[0], atol=1e-5)


def test_a_ranking_adds_up_the_best_products(fleet: Fleet, judge: MultiVectorEncoder) -> None:
    """C34: scores of 5 and 300 tokens, together and alone, are the reference's."""
    expected = judge.similarity(token_vectors(judge, [QUERY], "query"), token_vectors(judge, DOCUMENTS, "document"))
    reply = fleet.ask("/v1/rerank", "tiny-colbert", query=QUERY, documents=DOCUMENTS)
    assert reply["method"] == "maxsim"
    scores = {row["index"]: row["relevance_score"] for row in reply["results"]}
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    assert len(reply["num_tokens"]) == len(DOCUMENTS)
    for place, document in enumerate(DOCUMENTS):
        alone = fleet.ask("/v1/rerank", "tiny-colbert", query=QUERY, documents=[document])
        assert scores[place] == pytest.approx(float(expected[0, place]), abs=1e-4)
        assert alone["results"][0]["relevance_score"] == pytest.approx(scores[place], abs=1e-4)


def test_base64_carries_its_shape(fleet: Fleet) -> None:
    """C34."""
    expected = ask(fleet, DOCUMENTS)
    for dtype, kind in (("float32", "<f4"), ("float16", "<f2"), ("int8", "|i1")):
        reply = fleet.ask(
            ROUTE, "tiny-colbert", input=DOCUMENTS, outputs=["multivector"], encoding="base64", dtype=dtype
        )
        assert reply["dtype"] == dtype
        for place, (text, rows) in enumerate(zip(reply["multivector"], expected, strict=True)):
            assert text["shape"] == list(rows.shape)
            numbers = np.frombuffer(base64.b64decode(text["data"]), kind).reshape(text["shape"]).astype(np.float32)
            if dtype == "int8":
                numbers *= np.array(reply["multivector_scales"][place], np.float32)[:, None]
            np.testing.assert_allclose(numbers, rows, atol=0.01 if dtype == "int8" else 1e-3)
    binary = fleet.ask(ROUTE, "tiny-colbert", input=SHORT, outputs=["multivector"], dtype="binary")
    (text,) = binary["multivector"]
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text["data"]), np.uint8).reshape(-1, 2), axis=1)
    assert text["shape"] == list(bits.shape) == list(expected[0].shape)
    np.testing.assert_array_equal(bits > 0, expected[0] > 0)


def test_messagepack_is_one_matrix_and_the_client_splits_it(fleet: Fleet) -> None:
    body = msgspec.msgpack.encode({"model": "tiny-colbert", "input": DOCUMENTS, "outputs": ["multivector"]})
    headers = {"content-type": "application/msgpack"}
    rows = ask(fleet, DOCUMENTS)
    packed = httpx.post(fleet.url + ROUTE, content=body, headers=headers, timeout=60)
    found = msgspec.msgpack.decode(packed.content, type=EmbedReply).multivector
    assert found is not None
    assert (found.lengths, found.dimensions) == ([len(one) for one in rows], 16)
    np.testing.assert_allclose(np.frombuffer(found.data, "<f4").reshape(-1, 16), np.concatenate(rows), atol=1e-6)
    with Client(fleet.url, batch_items=2) as client:
        for dtype, tolerance in (("float32", 1e-6), ("int8", 0.01), ("binary", 0.8)):
            result = client.embed(DOCUMENTS, "tiny-colbert", outputs=["multivector"], dtype=dtype)
            assert result.multivector is not None
            assert len(result.multivector) == 3
            for place, expected in enumerate(rows):
                np.testing.assert_allclose(result.multivector[place], expected, atol=tolerance)


def test_likes_are_merged_as_in_the_reference(fleet: Fleet, judge: MultiVectorEncoder) -> None:
    expected = token_vectors(judge, DOCUMENTS, "document", token_pooling=HierarchicalTokenPooling(2.0))
    for own, reference in zip(ask(fleet, DOCUMENTS, pool_factor=2), expected, strict=True):
        assert own.shape == reference.shape
        np.testing.assert_allclose(own, reference, atol=1e-4)


def test_three_outputs_of_one_run(fleet: Fleet) -> None:
    """C33: bge-m3's form: words of the text alone, none of them special, the largest weight of each."""
    texts = ["what is bge m3? what is it", *NASTY_TEXTS[:20]]
    weights, vectors, dense = m3_outputs(fleet.directories["tiny-m3"], texts)
    reply = fleet.ask(ROUTE, "tiny-m3", input=texts, outputs=["sparse", "multivector", "dense"])
    np.testing.assert_allclose(reply["embeddings"], dense, atol=1e-4)
    for row, expected in zip(reply["sparse"], weights, strict=True):
        assert row["indices"] == sorted(expected)
        np.testing.assert_allclose(row["values"], [expected[index] for index in row["indices"]], atol=1e-4)
    for rows, matrix in zip(reply["multivector"], vectors, strict=True):
        np.testing.assert_allclose(np.array(rows, np.float32), matrix, atol=1e-4)
    assert reply["num_tokens"] == [len(matrix) + 1 for matrix in vectors], "each text ran once"
    alone = fleet.ask(ROUTE, "tiny-m3", input=texts[0], outputs=["sparse"])
    assert alone["sparse"][0]["indices"] == reply["sparse"][0]["indices"]
    np.testing.assert_allclose(alone["sparse"][0]["values"], reply["sparse"][0]["values"], atol=1e-5)


def test_states_of_a_dense_models_tokens(fleet: Fleet) -> None:
    """As the reference gives them: special tokens included, no pooling, no norm, no prompt that is not named."""
    judge = load_reference(fleet.directories["tiny-states"])
    texts = [SHORT, PUNCTUATION, "cat"]
    for fields, name in (({}, None), ({"prompt_name": "query"}, "query")):
        reply = httpx.post(f"{fleet.url}/tei/tiny-states/embed_all", json={"inputs": texts, **fields}, timeout=60)
        for text, rows in zip(texts, reply.json(), strict=True):
            with quiet():
                (expected,) = judge.encode([text], output_value="token_embeddings", prompt_name=name)
            np.testing.assert_allclose(np.array(rows), expected.numpy(), atol=1e-4)
    ranked = fleet.ask("/v1/rerank", "tiny-states", query=QUERY, documents=texts)
    assert ranked["method"] == "cosine", "bare states were not trained to be compared"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "dense of a multivector model": ({"model": "tiny-colbert"}, "outputs"),
    "multivector of a dense model": ({"model": "tiny-mean", "outputs": ["multivector"]}, "outputs"),
    "dimensions": ({"model": "tiny-colbert", "outputs": ["multivector"], "dimensions": 8}, "dimensions"),
    "pool_factor": ({"model": "tiny-colbert", "outputs": ["multivector"], "pool_factor": 0.5}, "pool_factor"),
    "pool_factor of dense": ({"model": "tiny-mean", "pool_factor": 2}, "pool_factor"),
    "too long": (
        {"model": "tiny-colbert", "outputs": ["multivector"], "input": ["a", LONG], "truncate": False},
        "input[1]",
    ),
    "mean of windows": ({"model": "tiny-colbert", "outputs": ["multivector"], "overflow": "chunk"}, "overflow"),
    "input_type": ({"model": "tiny-colbert", "outputs": ["multivector"], "input_type": "passage"}, "input_type"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_model_cannot_do_is_refused_by_name(fleet: Fleet, case: str) -> None:
    fields, param = REFUSED[case]
    reply = httpx.post(fleet.url + ROUTE, json={"input": "a", **fields}, timeout=60)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param
    assert_alive(fleet.url, MODEL)


def test_a_query_is_never_cut(fleet: Fleet) -> None:
    reply = httpx.post(
        fleet.url + "/v1/rerank", json={"model": "tiny-colbert", "query": LONG, "documents": ["a"]}, timeout=60
    )
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "query")
    assert "takes 32" in reply.json()["error"]["message"]


def test_cards_say_what_there_is(fleet: Fleet) -> None:
    cards = {card["id"]: card for card in httpx.get(fleet.url + "/v1/models", timeout=30).json()["data"]}
    assert cards["tiny-colbert"]["outputs"] == ["multivector"]
    assert cards["tiny-colbert"]["multivector_dimensions"] == 16
    assert cards["tiny-colbert"]["rerank_method"] == "maxsim"
    assert cards["tiny-m3"]["outputs"] == ["dense", "sparse", "multivector"]
