"""Cohere's own client against a server: what it gets is what the native API gives."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator

import cohere
import httpx
import numpy as np
import pytest

from surfaces.conftest import EMBEDDER, QUERY, RANKER, TEXTS, Tiny

BASES = ["", "/cohere"]
Connect = Callable[[str], cohere.ClientV2]


@pytest.fixture
def connect(tiny: Tiny) -> Iterator[Connect]:
    """`connect(base)`: a client for that base URL, closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda base: stack.enter_context(cohere.ClientV2("none", base_url=tiny.url + base))


@pytest.mark.parametrize("base", BASES)
def test_embed_in_every_type(tiny: Tiny, connect: Connect, base: str) -> None:
    client = connect(base)
    reply = client.embed(
        model=EMBEDDER,
        texts=TEXTS,
        input_type="search_document",
        embedding_types=["ubinary", "float", "binary", "base64"],
    )
    expected = tiny.embed(TEXTS, prompt_name="document")
    np.testing.assert_allclose(reply.embeddings.float_, expected, atol=1e-6)
    assert reply.embeddings.base64 is not None
    decoded = [np.frombuffer(base64.b64decode(row), "<f4") for row in reply.embeddings.base64]
    np.testing.assert_array_equal(decoded, np.array(reply.embeddings.float_, np.float32))
    bits = np.packbits(expected > 0, axis=1).astype(int)
    np.testing.assert_array_equal(reply.embeddings.ubinary, bits)
    np.testing.assert_array_equal(reply.embeddings.binary, bits - 128)
    assert (reply.texts, reply.embeddings.int8) == (TEXTS, None)
    assert reply.id
    assert reply.meta is not None
    assert reply.meta.billed_units is not None
    assert reply.meta.billed_units.input_tokens > len(TEXTS)


def test_input_type_takes_the_models_own_prompt_if_it_has_one(tiny: Tiny, connect: Connect) -> None:
    client = connect("")
    for input_type, fields in (
        ("search_query", {"prompt_name": "query"}),
        ("search_document", {"prompt_name": "document"}),
        ("classification", {}),
        ("clustering", {}),
    ):
        reply = client.embed(model=EMBEDDER, texts=TEXTS, input_type=input_type, embedding_types=["float"])
        np.testing.assert_allclose(reply.embeddings.float_, tiny.embed(TEXTS, **fields), atol=1e-6)


def test_length_and_truncation(tiny: Tiny, connect: Connect) -> None:
    client = connect("")
    fields = {"model": EMBEDDER, "input_type": "classification", "embedding_types": ["float"]}
    whole = tiny.embed(TEXTS)
    reply = client.embed(texts=TEXTS, output_dimension=whole.shape[1], **fields)
    np.testing.assert_allclose(reply.embeddings.float_, whole, atol=1e-6)
    long = ["first " * 500 + "last " * 500]
    for truncate, side in (("START", "left"), ("END", "right")):
        reply = client.embed(texts=long, truncate=truncate, **fields)
        expected = tiny.embed(long, truncate=True, truncation_side=side)
        np.testing.assert_allclose(reply.embeddings.float_, expected, atol=1e-6)
    with pytest.raises(cohere.BadRequestError) as caught:
        client.embed(texts=long, truncate="NONE", **fields)
    assert caught.value.body["message"].startswith("texts[0]")
    assert "truncate: END" in caught.value.body["message"]


@pytest.mark.parametrize("base", BASES)
def test_rerank(tiny: Tiny, connect: Connect, base: str) -> None:
    client = connect(base)
    scores = tiny.scores(TEXTS)
    reply = client.rerank(model=RANKER, query=QUERY, documents=TEXTS)
    assert [row.index for row in reply.results] == sorted(range(3), key=lambda index: -scores[index])
    np.testing.assert_allclose([row.relevance_score for row in reply.results], sorted(scores, reverse=True), atol=1e-6)
    assert reply.meta is not None
    assert reply.meta.billed_units is not None
    assert (reply.meta.billed_units.search_units, reply.meta.warnings) == (1, None)
    best = client.rerank(model=RANKER, query=QUERY, documents=TEXTS * 50, top_n=2, max_tokens_per_doc=8)
    assert len(best.results) == 2
    assert best.meta is not None
    assert best.meta.billed_units is not None
    assert best.meta.billed_units.search_units == 2
    assert best.meta.warnings is not None
    assert "max_tokens_per_doc" in best.meta.warnings[0]


def test_a_model_that_only_embeds_ranks_with_a_warning(tiny: Tiny, connect: Connect) -> None:
    client = connect("")
    reply = client.rerank(model=EMBEDDER, query=QUERY, documents=TEXTS)
    by_index = {row.index: row.relevance_score for row in reply.results}
    np.testing.assert_allclose([by_index[i] for i in range(3)], tiny.scores(TEXTS, EMBEDDER), atol=1e-6)
    assert reply.meta is not None
    assert reply.meta.warnings is not None
    assert "cosine" in reply.meta.warnings[0]


async def test_async(tiny: Tiny) -> None:
    async with cohere.AsyncClientV2("none", base_url=tiny.url) as client:
        vectors = await client.embed(model=EMBEDDER, texts=TEXTS, input_type="search_query", embedding_types=["float"])
        ranks = await client.rerank(model=RANKER, query=QUERY, documents=TEXTS)
    np.testing.assert_allclose(vectors.embeddings.float_, tiny.embed(TEXTS, prompt_name="query"), atol=1e-6)
    assert len(ranks.results) == 3


@pytest.mark.filterwarnings("ignore:(Accessing the 'model_fields'|The `parse_obj` method)")  # cohere's own
def test_version_1(tiny: Tiny) -> None:
    with cohere.Client("none", base_url=f"{tiny.url}/cohere") as client:
        plain = client.embed(model=EMBEDDER, texts=TEXTS, input_type="search_query")
        np.testing.assert_allclose(plain.embeddings, tiny.embed(TEXTS, prompt_name="query"), atol=1e-6)
        typed = client.embed(model=EMBEDDER, texts=TEXTS, input_type="search_query", embedding_types=["float"])
        np.testing.assert_allclose(typed.embeddings.float_, plain.embeddings, atol=1e-6)
        documents = [{"text": text} for text in TEXTS]
        ranks = client.rerank(model=RANKER, query=QUERY, documents=documents, return_documents=True, top_n=2)
        assert len(ranks.results) == 2
        for row in ranks.results:
            assert row.document is not None
            assert row.document.text == TEXTS[row.index]


@pytest.mark.filterwarnings("ignore:(Accessing the 'model_fields'|The `parse_obj` method)")  # cohere's own
def test_version_1_splits_long_lists(tiny: Tiny) -> None:
    """The client sends 96 texts at a time."""
    texts = [f"{text} {number}" for number in range(70) for text in TEXTS]
    with cohere.Client("none", base_url=f"{tiny.url}/cohere") as client:
        vectors = client.embed(model=EMBEDDER, texts=texts, input_type="classification", truncate="START")
    np.testing.assert_allclose(vectors.embeddings, tiny.embed(texts), atol=1e-6)


def test_long_documents_and_raw_replies(tiny: Tiny, connect: Connect) -> None:
    client = connect("")
    reply = client.rerank(model=RANKER, query=QUERY, documents=[*TEXTS, "long " * 500])
    assert len(reply.results) == 4
    raw = client.with_raw_response.embed(
        model=EMBEDDER,
        texts=TEXTS,
        input_type="search_query",
        embedding_types=["float"],
        request_options={"max_retries": 0},
    )
    assert raw.headers["x-request-id"] == raw.data.id


def test_errors_are_in_coheres_shape(tiny: Tiny, connect: Connect) -> None:
    client = connect("")
    fields = {"texts": TEXTS, "input_type": "search_query"}
    with pytest.raises(cohere.NotFoundError) as missing:
        client.embed(model="tiny-embeder", **fields)
    assert EMBEDDER in missing.value.body["message"]
    for kind in ("int8", "uint8"):
        with pytest.raises(cohere.BadRequestError) as refused:
            client.embed(model=EMBEDDER, embedding_types=[kind], **fields)
        assert "calibration" in refused.value.body["message"]
    with pytest.raises(cohere.BadRequestError) as cut:
        client.embed(model=EMBEDDER, output_dimension=33, **fields)
    assert cut.value.body["message"].startswith("output_dimension is 33")
    for wrong in ({"images": ["data:image/png;base64,"]}, {"inputs": [{"content": []}]}, {"texts": []}, {"texts": 5}):
        reply = tiny.post("/v2/embed", model=EMBEDDER, **(fields | wrong))
        assert reply.status_code == 400, wrong
        assert set(reply.json()) == {"message", "id"}
        assert next(iter(wrong)) in reply.json()["message"]
    for wrong in ({"query": None}, {"top_n": 0}, {"documents": []}, {"rank_fields": ["title"]}):
        ranking = {"model": RANKER, "query": QUERY, "documents": TEXTS} | wrong
        reply = tiny.post("/v2/rerank", **ranking)
        assert reply.status_code == 400, wrong
        assert next(iter(wrong)) in reply.json()["message"]
    for method, path, status in (("POST", "/v2/chat", 404), ("GET", "/cohere/v1/embed", 405)):
        elsewhere = httpx.request(method, tiny.url + path)
        assert elsewhere.status_code == status
        assert isinstance(elsewhere.json()["message"], str)
