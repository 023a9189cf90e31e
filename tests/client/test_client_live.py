"""Both clients and `shoal embed` against `shoal serve` itself, with the fake runtime."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import numpy as np
import pytest

import shoal
from e2e.running import running, serving
from shoal.client.wire import place_of

MODEL = "fake:small"
TEXTS = [f"text {number} " + "and more words " * (number % 9) for number in range(400)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(MODEL, "--runtime", "fake") as (_, url):
        yield url


async def test_a_split_list_equals_its_texts_one_by_one(url: str, connect):
    client = connect(url, batch_items=32)
    together = await client.embed(TEXTS)
    for number in (0, 31, 32, 399):
        alone = await client.embed(TEXTS[number])
        np.testing.assert_allclose(together.vectors[number], alone.vectors[0], atol=1e-6)
        assert together.num_tokens[number] == alone.num_tokens[0] > 1
    assert len(np.unique(together.vectors, axis=0)) == len(TEXTS)
    assert together.times["total_ms"] > 0
    assert not any(together.truncated)


@pytest.mark.parametrize(("dtype", "likeness"), [("float16", 0.999999), ("int8", 0.999), ("binary", 0.6)])
async def test_dtypes(url: str, connect, dtype: str, likeness: float):
    client = connect(url, batch_items=50)
    exact = (await client.embed(TEXTS)).vectors
    small = await client.embed(TEXTS, dtype=dtype)
    assert small.stored.nbytes < exact.nbytes
    lengths = np.linalg.norm(exact, axis=1) * np.linalg.norm(small.vectors, axis=1)
    assert ((exact * small.vectors).sum(axis=1) / lengths).min() > likeness


async def test_models_and_health(url: str, connect):
    client = connect(url)
    (model,) = await client.models()
    assert (model.state, model.dimensions) == ("ready", 8)
    assert model.operations == ("embed", "rerank", "classify", "extract", "similarity", "tokenize")
    assert (await client.health()).is_ready
    assert (await client.embed("x")).model == model.id


async def test_errors(url: str, connect):
    client = connect(url, batch_items=10)
    with pytest.raises(shoal.UnknownModel):
        await client.embed("x", "no such model")
    with pytest.raises(shoal.InvalidRequest) as caught:
        await client.embed("x", dimensions=10_000)
    assert caught.value.param == "dimensions"
    with pytest.raises(shoal.ContextLengthExceeded) as caught:
        await client.embed([*TEXTS[:25], "word " * 2000, "x"], truncate=False)
    assert place_of(caught.value) == 25
    assert "input[25]" in caught.value.message
    cut = await client.embed([*TEXTS[:25], "word " * 2000, "x"], truncate=True)
    assert cut.truncated == [False] * 25 + [True, False]


def test_the_command_line(url: str):
    with running("embed", "a", "b", "--url", url) as command:
        assert command.process.wait(30) == 0
    with running("models", "list", "--url", url, "--json") as command:
        assert command.process.wait(30) == 0


async def test_a_split_ranking_equals_a_whole_one(url: str, connect):
    whole = await connect(url).rerank("which one", TEXTS)
    assert repr(whole).startswith(f"<RerankResult of {whole.model}: {len(TEXTS)} documents, {len(TEXTS)} in order, ")
    assert len(repr(whole)) < 120
    client = connect(url, batch_items=32)
    split = await client.rerank("which one", TEXTS, top_n=5)
    assert (split.model, split.method) == ("small", "cross_encoder")
    np.testing.assert_array_equal(split.scores, whole.scores)
    np.testing.assert_array_equal(split.order, whole.order[:5])
    assert len(np.unique(split.scores)) == len(TEXTS)
    assert [score for _, score in split.best] == sorted(split.scores.tolist(), reverse=True)[:5]
    assert len(split.num_tokens) == len(split.truncated) == len(TEXTS)
    with pytest.raises(shoal.InvalidRequest) as caught:
        await client.rerank("which one", ["a", 5])
    assert caught.value.param == "documents[1]"
    with pytest.raises(shoal.InvalidRequest) as caught:
        await client.rerank("which one", [])
    assert caught.value.param == "documents"


async def test_sparse_vectors_beside_dense_ones(url: str, connect):
    client = connect(url, batch_items=32)
    dense = await client.embed(TEXTS)
    both = await client.embed(TEXTS, outputs=["dense", "sparse"])
    np.testing.assert_array_equal(both.vectors, dense.vectors)
    assert dense.sparse is None
    sparse = both.sparse
    assert len(sparse) == len(TEXTS)
    assert sparse.lengths.sum() == len(sparse.indices) == len(sparse.values)
    for place in (0, 31, 32, 399):
        only = (await client.embed(TEXTS[place], outputs=["sparse"])).sparse
        for ours, alone in zip(sparse[place], only[0], strict=True):
            np.testing.assert_array_equal(ours, alone)
    assert (await client.embed(TEXTS[:40], outputs=["sparse"], top_k=1)).sparse.lengths.tolist() == [1] * 40


@pytest.mark.parametrize("encoding", ["json", "base64"])
def test_json_holds_each_output_in_any_order(url: str, encoding: str):
    body = {"model": "small", "input": TEXTS[:40], "encoding": encoding, "top_k": 3}
    reply = httpx.post(url + "/v1/embed", json={**body, "outputs": ["sparse", "dense"]}, timeout=60).json()
    turned = httpx.post(url + "/v1/embed", json={**body, "outputs": ["dense", "sparse"]}, timeout=60).json()
    dense = httpx.post(url + "/v1/embed", json=body, timeout=60).json()
    assert reply["embeddings"] == turned["embeddings"] == dense["embeddings"]
    assert reply["sparse"] == turned["sparse"]
    assert len(reply["sparse"]) == len(reply["num_tokens"]) == 40
    assert all(0 < len(row["indices"]) == len(row["values"]) <= 3 for row in reply["sparse"])
    assert (reply["dtype"], reply["dimensions"]) == ("float32", 8)
    assert "sparse" not in dense


async def test_similarity_is_that_of_the_vectors(url: str, connect):
    client = connect(url, batch_items=32)
    result = await client.similarity(TEXTS[3], TEXTS)
    vectors = (await client.embed(TEXTS)).vectors
    assert (result.function, len(result)) == ("cosine", len(TEXTS))
    np.testing.assert_allclose(result.scores, vectors @ vectors[3], atol=1e-5)
    assert int(result.scores.argmax()) == 3
    with pytest.raises(shoal.InvalidRequest, match="source"):
        await client.similarity("long " * 1000, ["x"], truncate=False)


async def test_entities_keep_the_order_of_the_texts(url: str, connect):
    client = connect(url, batch_items=32)
    result = await client.extract(TEXTS, aggregation="none")
    assert (len(result), result.truncated) == (len(TEXTS), [False] * len(TEXTS))
    tokens = (await client.tokenize(TEXTS)).texts
    for text, found, of_text in zip(TEXTS, result.texts, tokens, strict=True):
        assert all(text[entity.start : entity.end] == entity.text for entity in found)
        places = zip(of_text.ids, of_text.offsets, strict=True)
        odd = [text[start:end].strip() for token, (start, end) in places if token % 2]
        assert [entity.text for entity in found] == odd
    assert len((await client.extract(TEXTS, labels=["ODD"])).request_ids) > 1
    with pytest.raises(shoal.InvalidRequest) as caught:
        await client.extract("x", labels=["PER"])
    assert caught.value.param == "labels"


async def test_tokens_are_those_that_embedding_runs(url: str, connect):
    client = connect(url, batch_items=32)
    result = await client.tokenize(TEXTS)
    assert result.num_tokens == (await client.embed(TEXTS)).num_tokens == [len(text.ids) for text in result.texts]
    for text, tokens in zip(TEXTS, result.texts, strict=True):
        assert "".join(text[start:end] for start, end in tokens.offsets) == text
    long = await client.tokenize("more words " * 1000)
    assert long.num_tokens[0] > long.max_length


async def test_a_long_text_is_cut_refused_or_embedded_whole(url: str, connect):
    client = connect(url)
    text = "all these words " * 500
    whole = await client.embed(text, overflow="chunk")
    cut = await client.embed(text, overflow="truncate")
    assert (whole.truncated, cut.truncated) == ([False], [True])
    assert whole.num_tokens == (await client.tokenize(text)).num_tokens > cut.num_tokens
    for word in ({"overflow": "error"}, {"truncate": False}):
        with pytest.raises(shoal.ContextLengthExceeded):
            await client.embed(text, **word)
    with pytest.raises(shoal.InvalidRequest, match="overflow is chunk, but truncate is false"):
        await client.embed(text, overflow="chunk", truncate=False)
