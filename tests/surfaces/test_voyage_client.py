"""Voyage's own client against a server: what it gets is what the native API gives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import requests
import voyageai

from surfaces.conftest import EMBEDDER, QUERY, RANKER, TEXTS, Tiny


@pytest.fixture
def client(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> Iterator[voyageai.Client]:
    """One whose connections are closed at the end."""
    with requests.Session() as session:
        monkeypatch.setattr(voyageai, "requestssession", session)
        yield voyageai.Client("none", base_url=f"{tiny.url}/voyage/v1")


def test_embed(tiny: Tiny, client: voyageai.Client) -> None:
    plain = client.embed(TEXTS, model=EMBEDDER)
    np.testing.assert_allclose(plain.embeddings, tiny.embed(TEXTS), atol=1e-6)
    assert plain.total_tokens == sum(tiny.ask("/v1/tokenize", model=EMBEDDER, input=TEXTS)["num_tokens"])
    for input_type in ("query", "document"):
        typed = client.embed(TEXTS, model=EMBEDDER, input_type=input_type, truncation=True)
        np.testing.assert_allclose(typed.embeddings, tiny.embed(TEXTS, prompt_name=input_type), atol=1e-6)
    bits = np.packbits(tiny.embed(TEXTS) > 0, axis=1).astype(int)
    np.testing.assert_array_equal(client.embed(TEXTS, model=EMBEDDER, output_dtype="ubinary").embeddings, bits)
    np.testing.assert_array_equal(client.embed(TEXTS, model=EMBEDDER, output_dtype="binary").embeddings, bits - 128)


def test_rerank(tiny: Tiny, client: voyageai.Client) -> None:
    scores = tiny.scores(TEXTS)
    reply = client.rerank(QUERY, TEXTS, model=RANKER)
    assert [row.index for row in reply.results] == sorted(range(3), key=lambda index: -scores[index])
    for row in reply.results:
        assert row.relevance_score == pytest.approx(scores[row.index], abs=1e-6)
        assert row.document == TEXTS[row.index]
    assert len(client.rerank(QUERY, TEXTS, model=RANKER, top_k=2).results) == 2
    assert reply.total_tokens > 3


def test_errors_name_voyages_own_fields(client: voyageai.Client) -> None:
    with pytest.raises(voyageai.error.InvalidRequestError, match="output_dimension is 7"):
        client.embed(TEXTS, model=EMBEDDER, output_dimension=7)
    with pytest.raises(voyageai.error.InvalidRequestError, match=r"input\[0\].*send truncation: true"):
        client.embed(["long " * 900], model=EMBEDDER, truncation=False)
    with pytest.raises(voyageai.error.APIError, match=EMBEDDER):
        client.embed(TEXTS, model="tiny-embeder")


async def test_async(tiny: Tiny) -> None:
    client = voyageai.AsyncClient("none", base_url=f"{tiny.url}/voyage/v1")
    vectors = await client.embed(TEXTS, model=EMBEDDER, input_type="query")
    np.testing.assert_allclose(vectors.embeddings, tiny.embed(TEXTS, prompt_name="query"), atol=1e-6)
    ranks = await client.rerank(QUERY, TEXTS, model=RANKER)
    assert len(ranks.results) == 3
