"""The clients that people already have: the official openai package and langchain's."""

from __future__ import annotations

import base64

import numpy as np
import openai
import pytest

from e2e.conftest import Fleet
from e2e.running import MODEL


def decoded(embedding: list[float] | str) -> list[float]:
    """Where base64 was asked for, the client hands on the string as it came."""
    return embedding if isinstance(embedding, list) else np.frombuffer(base64.b64decode(embedding), "<f4").tolist()


@pytest.mark.parametrize("encoding", [openai.omit, "float", "base64"])
def test_openai_sync(fleet: Fleet, encoding: object) -> None:
    with openai.OpenAI(base_url=f"{fleet.url}/v1", api_key="none") as client:
        reply = client.embeddings.create(model=MODEL, input=["hello", "shoal"], encoding_format=encoding)
        assert [row.index for row in reply.data] == [0, 1]
        np.testing.assert_allclose(
            [decoded(row.embedding) for row in reply.data], fleet.embed(MODEL, ["hello", "shoal"]), atol=1e-6
        )
        assert reply.usage.prompt_tokens == reply.usage.total_tokens > 4
        assert MODEL in {model.id for model in client.models.list()}
        with pytest.raises(openai.NotFoundError) as caught:
            client.embeddings.create(model="text-embedding-3-small", input="x")
        assert caught.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError, match="dimensions"):
            client.embeddings.create(model=MODEL, input="x", dimensions=7)


@pytest.mark.parametrize("encoding", [openai.omit, "float", "base64"])
async def test_openai_async(fleet: Fleet, encoding: object) -> None:
    async with openai.AsyncOpenAI(base_url=f"{fleet.url}/v1", api_key="none") as client:
        reply = await client.embeddings.create(model=MODEL, input="hello", encoding_format=encoding)
        np.testing.assert_allclose(decoded(reply.data[0].embedding), fleet.embed(MODEL, "hello")[0], atol=1e-6)


@pytest.fixture
def cl100k(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenAI's vocabulary is a download; one of single bytes stands in for it under its name."""
    import tiktoken

    bytes_only = tiktoken.Encoding(
        "cl100k_base",
        pat_str=r"\S+|\s+",
        mergeable_ranks={bytes([i]): i for i in range(256)},
        special_tokens={"<|endoftext|>": 256},
    )
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "cl100k_base", bytes_only)


@pytest.mark.usefixtures("cl100k")
def test_langchain(fleet: Fleet) -> None:
    """By default it sends ids of OpenAI's vocabulary: refused, with the switch to set; with it, right vectors."""
    from langchain_openai import OpenAIEmbeddings

    settings = {"model": MODEL, "base_url": f"{fleet.url}/v1", "api_key": "none"}
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        OpenAIEmbeddings(**settings).embed_query("hello shoal")
    right = OpenAIEmbeddings(**settings, check_embedding_ctx_length=False).embed_documents(["hello", "shoal"])
    np.testing.assert_allclose(right, fleet.embed(MODEL, ["hello", "shoal"]), atol=1e-6)
