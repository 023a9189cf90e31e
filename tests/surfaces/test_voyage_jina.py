"""Voyage's and Jina's shapes, as their documentation gives them: the numbers are the native API's."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from surfaces.conftest import EMBEDDER, QUERY, RANKER, TEXTS, Tiny

TYPE_FIELDS = {"/voyage/v1": "output_dtype", "/jina/v1": "embedding_type"}


def vectors(tiny: Tiny, base: str, texts: Any = TEXTS, **fields: Any) -> npt.NDArray[Any]:
    reply = tiny.post(f"{base}/embeddings", model=EMBEDDER, input=texts, **fields)
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert (body["object"], body["model"]) == ("list", EMBEDDER)
    assert body["usage"]["total_tokens"] > len(body["data"])
    assert [row["index"] for row in body["data"]] == list(range(len(body["data"])))
    return np.array([row["embedding"] for row in body["data"]])


@pytest.mark.parametrize("base", TYPE_FIELDS)
def test_types_of_vectors(tiny: Tiny, base: str) -> None:
    expected = tiny.embed(TEXTS)
    bits = np.packbits(expected > 0, axis=1).astype(int)
    np.testing.assert_allclose(vectors(tiny, base), expected, atol=1e-6)
    np.testing.assert_allclose(vectors(tiny, base, TEXTS[1]), expected[1:2], atol=1e-6)
    np.testing.assert_array_equal(vectors(tiny, base, **{TYPE_FIELDS[base]: "ubinary"}), bits)
    np.testing.assert_array_equal(vectors(tiny, base, **{TYPE_FIELDS[base]: "binary"}), bits - 128)


@pytest.mark.parametrize(
    ("base", "fields", "dtype"),
    [
        ("/voyage/v1", {"encoding_format": "base64"}, "<f4"),
        ("/voyage/v1", {"encoding_format": "base64", "output_dtype": "binary"}, "i1"),
        ("/jina/v1", {"embedding_type": "base64"}, "<f4"),
    ],
)
def test_base64(tiny: Tiny, base: str, fields: dict[str, str], dtype: str) -> None:
    rows = [np.frombuffer(base64.b64decode(row), dtype) for row in vectors(tiny, base, **fields)]
    expected = tiny.embed(TEXTS)
    if dtype == "i1":
        expected = np.packbits(expected > 0, axis=1).astype(int) - 128
    np.testing.assert_allclose(rows, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("base", "fields", "prompt"),
    [
        ("/voyage/v1", {"input_type": "query"}, {"prompt_name": "query"}),
        ("/voyage/v1", {"input_type": "document"}, {"prompt_name": "document"}),
        ("/voyage/v1", {"input_type": None}, {}),
        ("/jina/v1", {"task": "retrieval.query"}, {"prompt_name": "query"}),
        ("/jina/v1", {"task": "retrieval.passage"}, {"prompt_name": "document"}),
        ("/jina/v1", {"task": "text-matching"}, {}),
    ],
)
def test_prompts(tiny: Tiny, base: str, fields: dict[str, Any], prompt: dict[str, str]) -> None:
    np.testing.assert_allclose(vectors(tiny, base, **fields), tiny.embed(TEXTS, **prompt), atol=1e-6)


def test_jina_takes_objects_too(tiny: Tiny) -> None:
    objects = [{"text": text} for text in TEXTS]
    np.testing.assert_allclose(vectors(tiny, "/jina/v1", objects), tiny.embed(TEXTS), atol=1e-6)


@pytest.mark.parametrize(("base", "best", "rows"), [("/voyage/v1", "top_k", "data"), ("/jina/v1", "top_n", "results")])
def test_rerank(tiny: Tiny, base: str, best: str, rows: str) -> None:
    scores = tiny.scores(TEXTS)
    fields = {"model": RANKER, "query": QUERY, "documents": TEXTS}
    ranks = tiny.ask(f"{base}/rerank", **fields, return_documents=False)[rows]
    assert [rank["index"] for rank in ranks] == sorted(range(3), key=lambda index: -scores[index])
    assert [rank["relevance_score"] for rank in ranks] == pytest.approx(sorted(scores, reverse=True), abs=1e-6)
    assert "document" not in ranks[0]
    reply = tiny.ask(f"{base}/rerank", **fields, return_documents=True, **{best: 1})
    (first,) = reply[rows]
    text = TEXTS[ranks[0]["index"]]
    assert first["document"] == (text if base == "/voyage/v1" else {"text": text})
    assert reply["usage"]["total_tokens"] > 3


@pytest.mark.parametrize(
    ("route", "fields", "named"),
    [
        ("/voyage/v1/embeddings", {"input": TEXTS, "output_dtype": "int8"}, "calibration"),
        ("/voyage/v1/embeddings", {"input": TEXTS, "output_dimension": 7}, "7"),
        ("/voyage/v1/embeddings", {"input": ["long " * 900], "truncation": False}, "input[0]"),
        ("/voyage/v1/rerank", {"documents": TEXTS, "query": "x", "top_k": 0}, "top_k"),
        ("/voyage/v1/rerank", {"documents": TEXTS}, "query"),
        ("/jina/v1/embeddings", {"input": TEXTS, "late_chunking": True}, "late_chunking"),
        ("/jina/v1/embeddings", {"input": TEXTS, "embedding_type": "int8"}, "embedding_type"),
        ("/jina/v1/rerank", {"documents": TEXTS, "query": "x", "top_n": 0}, "top_n"),
        ("/jina/v1/rerank", {"documents": TEXTS}, "query"),
    ],
)
def test_errors_have_a_detail(tiny: Tiny, route: str, fields: dict[str, Any], named: str) -> None:
    reply = tiny.post(route, model=EMBEDDER, **fields)
    assert reply.status_code == 400, reply.text
    assert reply.json().keys() == {"detail"}
    assert named in reply.json()["detail"]


def test_unknown_paths_have_a_detail(tiny: Tiny) -> None:
    for base in TYPE_FIELDS:
        reply = httpx.get(f"{tiny.url}{base}/models")
        assert reply.status_code == 404
        assert reply.json().keys() == {"detail"}
