"""Sparse vectors and labels over HTTP: what the reference gives, in JSON and in MessagePack."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from e2e.conftest import Fleet
from e2e.running import MODEL, assert_alive
from shoal.types import EmbedReply
from tiny_heads import load_sparse_encoder, sparse_weights
from tiny_models import NASTY_TEXTS


def dense_rows(rows: list[dict[str, Any]], size: int) -> np.ndarray:
    whole = np.zeros((len(rows), size), np.float32)
    for place, row in enumerate(rows):
        assert row["indices"] == sorted(set(row["indices"]))
        assert min(row["values"], default=1) > 0
        whole[place, row["indices"]] = row["values"]
    return whole


def test_sparse_vectors_are_those_of_the_reference(fleet: Fleet) -> None:
    """C33."""
    expected = sparse_weights(load_sparse_encoder(fleet.directories["tiny-sparse"]), NASTY_TEXTS)
    reply = fleet.ask("/v1/embed", "tiny-sparse", input=NASTY_TEXTS, outputs=["sparse"])
    assert "embeddings" not in reply
    np.testing.assert_allclose(dense_rows(reply["sparse"], expected.shape[1]), expected, atol=1e-4)
    for place in (0, 4, 21):
        alone = fleet.ask("/v1/embed", "tiny-sparse", input=NASTY_TEXTS[place], outputs=["sparse"])
        np.testing.assert_allclose(dense_rows(alone["sparse"], expected.shape[1])[0], expected[place], atol=1e-4)


def test_sparse_messagepack_is_flat_arrays(fleet: Fleet) -> None:
    texts = NASTY_TEXTS[:9]
    whole = fleet.ask("/v1/embed", "tiny-sparse", input=texts, outputs=["sparse"], top_k=12)["sparse"]
    body = msgspec.msgpack.encode({"model": "tiny-sparse", "input": texts, "outputs": ["sparse"], "top_k": 12})
    reply = httpx.post(
        fleet.url + "/v1/embed", content=body, headers={"content-type": "application/msgpack"}, timeout=60
    )
    sparse = msgspec.msgpack.decode(reply.content, type=EmbedReply).sparse
    assert sparse is not None
    assert sparse.lengths == [len(row["indices"]) for row in whole] == [12] * 9
    indices = [index for row in whole for index in row["indices"]]
    values = [value for row in whole for value in row["values"]]
    np.testing.assert_array_equal(np.frombuffer(sparse.indices, "<i4"), indices)
    np.testing.assert_allclose(np.frombuffer(sparse.values, "<f4"), values, atol=1e-6)


def test_texts_to_labels(fleet: Fleet) -> None:
    texts = ["the fox is quick", "東京は日本の首都です", ""]
    reply = fleet.ask("/v1/classify", "tiny-classes", input=texts)
    raw = fleet.ask("/v1/classify", "tiny-classes", input=texts, raw_scores=True)
    for ranked, logits in zip(reply["results"], raw["results"], strict=True):
        assert [row["label"] for row in ranked] == [row["label"] for row in logits]
        assert {row["label"] for row in ranked} == {"bad", "fair", "good"}
        assert sum(row["score"] for row in ranked) == pytest.approx(1, abs=1e-5)
        powers = np.exp([row["score"] for row in logits])
        np.testing.assert_allclose([row["score"] for row in ranked], powers / powers.sum(), atol=1e-5)
    best = fleet.ask("/v1/classify", "tiny-classes", input=texts, top_k=1)
    assert [ranked[:1] for ranked in reply["results"]] == best["results"]
    assert reply["usage"]["num_tokens"] == sum(reply["num_tokens"])


def test_labels_of_the_callers_own(fleet: Fleet) -> None:
    fields = {"input": ["one day I will see the world", "boil the pasta"], "labels": ["travel", "cooking"]}
    reply = fleet.ask("/v1/classify", "tiny-nli", **fields)
    assert [{row["label"] for row in ranked} for ranked in reply["results"]] == [{"travel", "cooking"}] * 2
    assert len(reply["num_tokens"]) == 2
    body = msgspec.msgpack.encode({"model": "tiny-nli", **fields})
    packed = httpx.post(
        fleet.url + "/v1/classify", content=body, headers={"content-type": "application/msgpack"}, timeout=60
    )
    for ranked, rows in zip(msgspec.msgpack.decode(packed.content)["results"], reply["results"], strict=True):
        assert [row["label"] for row in ranked] == [row["label"] for row in rows]


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "dense of a sparse model": ("/v1/embed", {"model": "tiny-sparse", "input": "a"}, "outputs"),
    "sparse of a dense model": ("/v1/embed", {"model": "tiny-mean", "input": "a", "outputs": ["sparse"]}, "outputs"),
    "an output twice": ("/v1/embed", {"model": "tiny-mean", "input": "a", "outputs": ["dense", "dense"]}, "outputs"),
    "no output": ("/v1/embed", {"model": "tiny-mean", "input": "a", "outputs": []}, "outputs"),
    "an unknown output": ("/v1/embed", {"model": "tiny-mean", "input": "a", "outputs": ["wet"]}, "outputs"),
    "top_k": ("/v1/embed", {"model": "tiny-sparse", "input": "a", "outputs": ["sparse"], "top_k": 0}, "top_k"),
    "classify of an embedder": ("/v1/classify", {"model": "tiny-mean", "input": "a"}, "model"),
    "own labels without entailment": (
        "/v1/classify",
        {"model": "tiny-classes", "input": "a", "labels": ["x"]},
        "labels",
    ),
    "a template without a place": (
        "/v1/classify",
        {"model": "tiny-nli", "input": "a", "labels": ["x"], "hypothesis_template": "no"},
        "hypothesis_template",
    ),
    "embed of a cross-encoder": ("/v1/embed", {"model": "tiny-cross", "input": "a"}, "model"),
    "OpenAI of a sparse model": ("/v1/embeddings", {"model": "tiny-sparse", "input": "a"}, "outputs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_model_cannot_do_is_refused_by_name(fleet: Fleet, case: str) -> None:
    route, body, param = REFUSED[case]
    reply = httpx.post(fleet.url + route, json=body, timeout=60)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param
    assert_alive(fleet.url, MODEL)
