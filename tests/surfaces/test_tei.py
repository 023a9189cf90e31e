"""TEI's clients against a server that has one model for each path: what they get is what the native API gives."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient

from surfaces.conftest import CLASSIFIER, COLBERT, EMBEDDER, QUERY, RANKER, SPARSE, TEXTS, Tiny

LONG = ["first " * 500 + "last " * 500]


def call(tiny: Tiny, route: str, **fields: Any) -> Any:
    reply = tiny.post(route, **fields)
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.parametrize("base", ["/tei", f"/tei/{EMBEDDER}"])
def test_hugging_faces_client(tiny: Tiny, base: str) -> None:
    """What langchain's HuggingFaceEndpointEmbeddings calls."""
    client = InferenceClient(tiny.url + base)
    np.testing.assert_allclose(client.feature_extraction(TEXTS), tiny.embed(TEXTS), atol=1e-6)
    np.testing.assert_allclose(client.feature_extraction(TEXTS[0]), tiny.embed(TEXTS[:1]), atol=1e-6)
    prompted = client.feature_extraction(TEXTS, prompt_name="query", normalize=True)
    np.testing.assert_allclose(prompted, tiny.embed(TEXTS, prompt_name="query"), atol=1e-6)
    cut = client.feature_extraction(LONG, truncate=True, truncation_direction="left")
    np.testing.assert_allclose(cut, tiny.embed(LONG, truncate=True, truncation_side="left"), atol=1e-6)


async def test_langchain(tiny: Tiny) -> None:
    """The class takes no URL for a model, so its clients are set to one, as for any inference endpoint."""
    from langchain_huggingface import HuggingFaceEndpointEmbeddings

    embeddings = HuggingFaceEndpointEmbeddings(model="org/any", huggingfacehub_api_token="none")
    embeddings.client = InferenceClient(f"{tiny.url}/tei")
    embeddings.async_client = AsyncInferenceClient(f"{tiny.url}/tei")
    expected = tiny.embed(TEXTS)
    np.testing.assert_allclose(embeddings.embed_documents(TEXTS), expected, atol=1e-6)
    np.testing.assert_allclose(embeddings.embed_query(TEXTS[1]), expected[1], atol=1e-6)
    np.testing.assert_allclose(await embeddings.aembed_documents(TEXTS), expected, atol=1e-6)
    await embeddings.async_client.close()


@pytest.mark.parametrize("base", ["", "/tei", f"/tei/{SPARSE}"])
def test_sparse(tiny: Tiny, base: str) -> None:
    rows = call(tiny, f"{base}/embed_sparse", inputs=TEXTS)
    expected = tiny.ask("/v1/embed", model=SPARSE, input=TEXTS, outputs=["sparse"])["sparse"]
    assert [[entry["index"] for entry in row] for row in rows] == [row["indices"] for row in expected]
    assert [[entry["value"] for entry in row] for row in rows] == [row["values"] for row in expected]


@pytest.mark.parametrize("base", ["", "/tei", f"/tei/{COLBERT}"])
def test_all_tokens(tiny: Tiny, base: str) -> None:
    texts = call(tiny, f"{base}/embed_all", inputs=TEXTS)
    expected = tiny.ask("/v1/embed", model=COLBERT, input=TEXTS, outputs=["multivector"])["multivector"]
    assert [len(rows) for rows in texts] == [len(rows) for rows in expected]
    for rows, native in zip(texts, expected, strict=True):
        np.testing.assert_allclose(rows, native, atol=1e-6)


@pytest.mark.parametrize("base", ["", "/tei", f"/tei/{RANKER}"])
def test_rerank(tiny: Tiny, base: str) -> None:
    ranks = call(tiny, f"{base}/rerank", query=QUERY, texts=TEXTS, return_text=True)
    scores = tiny.scores(TEXTS)
    assert [rank["index"] for rank in ranks] == sorted(range(3), key=lambda index: -scores[index])
    for rank in ranks:
        assert rank["score"] == pytest.approx(scores[rank["index"]], abs=1e-6)
        assert rank["text"] == TEXTS[rank["index"]]
    raw = call(tiny, f"{base}/rerank", query=QUERY, texts=TEXTS, raw_scores=True)
    expected = tiny.scores(TEXTS, raw_scores=True)
    assert [rank["score"] for rank in raw] == pytest.approx(sorted(expected, reverse=True), abs=1e-6)
    assert "text" not in raw[0]


@pytest.mark.parametrize("base", ["", "/tei", f"/tei/{CLASSIFIER}"])
def test_predict(tiny: Tiny, base: str) -> None:
    expected = tiny.ask("/v1/classify", model=CLASSIFIER, input=TEXTS)["results"]
    assert call(tiny, f"{base}/predict", inputs=TEXTS[0]) == expected[0]
    assert call(tiny, f"{base}/predict", inputs=TEXTS[:1]) == expected[0]
    assert call(tiny, f"{base}/predict", inputs=[[text] for text in TEXTS]) == expected
    raw = tiny.ask("/v1/classify", model=CLASSIFIER, input=TEXTS[0], raw_scores=True)["results"][0]
    assert call(tiny, f"{base}/predict", inputs=TEXTS[0], raw_scores=True) == raw


def test_pages(tiny: Tiny) -> None:
    for base in ("", "/tei", f"/tei/{RANKER}"):
        assert httpx.get(f"{tiny.url}{base}/health").status_code == 200
    about = httpx.get(f"{tiny.url}/tei/{RANKER}/info").json()
    assert about["model_id"] == RANKER
    assert (about["model_dtype"], about["max_input_length"]) == ("float32", 64)
    assert min(about["max_client_batch_size"], about["max_batch_tokens"]) > 64
    assert list(about["model_type"]) == ["reranker"]
    assert list(httpx.get(f"{tiny.url}/tei/{EMBEDDER}/info").json()["model_type"]) == ["embedding"]
    several = httpx.get(f"{tiny.url}/info")
    assert (several.status_code, several.json()["error_type"]) == (400, "validation")
    assert "/tei/MODEL" in several.json()["error"]


@pytest.mark.parametrize(
    ("route", "fields", "status", "named"),
    [
        ("/embed", {"inputs": LONG, "truncate": False}, 413, "inputs[0]"),
        ("/embed", {"inputs": []}, 422, "inputs"),
        ("/tei/embed", {"inputs": 5}, 422, "inputs"),
        ("/tei/embed", {"inputs": "x", "prompt_name": "nothing"}, 422, "prompt named"),
        ("/tei/nothing/embed", {"inputs": "x"}, 404, "nothing"),
        (f"/tei/{RANKER}/embed", {"inputs": "x"}, 400, "rerank"),
        ("/rerank", {"texts": TEXTS}, 422, "query"),
        ("/tei/predict", {"inputs": TEXTS[:2]}, 422, "inputs"),
        ("/tei/predict", {"inputs": [["a"], ["b", "c"]]}, 422, "inputs[1]"),
        ("/tei/predict", {"inputs": [5]}, 422, "inputs[0]"),
    ],
)
def test_errors_are_in_teis_shape(tiny: Tiny, route: str, fields: dict[str, Any], status: int, named: str) -> None:
    reply = tiny.post(route, **fields)
    assert reply.status_code == status, reply.text
    assert reply.json().keys() == {"error", "error_type"}
    assert reply.json()["error_type"] == "validation"
    assert named in reply.json()["error"]
