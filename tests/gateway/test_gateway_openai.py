"""POST /v1/embeddings: the official client, and what it never sends."""

from __future__ import annotations

import asyncio
import base64

import numpy as np
import openai
import pytest

from gateway.answering import num_tokens, vector
from gateway.conftest import Running

TEXTS = ["one", "two words", "a bit more of it"]


async def test_official_client_async(running: Running) -> None:
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none") as client:
        for fields in ({}, {"encoding_format": "float"}):
            reply = await client.embeddings.create(model="org/plain-model", input=TEXTS, **fields)
            assert [entry.index for entry in reply.data] == [0, 1, 2]
            for text, entry in zip(TEXTS, reply.data, strict=True):
                np.testing.assert_array_max_ulp(np.array(entry.embedding, np.float32), vector(text), 1)
            total = sum(map(num_tokens, TEXTS))
            assert (reply.usage.prompt_tokens, reply.usage.total_tokens) == (total, total)
            assert reply.model == "org/plain-model"
        assert [model.id async for model in client.models.list()] == ["org/mute", "org/nested", "org/plain-model"]
        assert (await client.models.retrieve("org/plain-model")).id == "org/plain-model"


async def test_official_client_sync(running: Running) -> None:
    def use() -> None:
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:
            reply = client.embeddings.create(model="plain", input="alone")
            np.testing.assert_array_equal(np.array(reply.data[0].embedding, np.float32), vector("alone"))
            with pytest.raises(openai.NotFoundError, match="plain-model") as unknown:
                client.embeddings.create(model="org/plain-modle", input="x")
            assert unknown.value.code == "model_not_found"
            with pytest.raises(openai.BadRequestError) as refused:
                client.embeddings.create(model="plain", input="x", dimensions=4)
            assert refused.value.param == "dimensions"

    await asyncio.to_thread(use)


async def test_base64_is_little_endian_float32(running: Running) -> None:
    reply = (await running.embed(input=TEXTS, encoding_format="base64")).json()
    for text, entry in zip(TEXTS, reply["data"], strict=True):
        assert np.array_equal(np.frombuffer(base64.b64decode(entry["embedding"]), "<f4"), vector(text))


async def test_null_is_absent_and_unknown_fields_are_ignored(running: Running) -> None:
    plain = await running.embed(input="x")
    same = await running.embed(
        input="x", encoding_format=None, dimensions=None, user=None, truncate=None, extra={"a": 1}
    )
    assert plain.status_code == same.status_code == 200
    assert plain.json() == same.json()


async def test_escapes_and_separators_inside_texts(running: Running) -> None:
    texts = ['a"b', "\\", "\\\\", '\\"', '","', "]", "[", "{},\n\t", "", "é \U0001f41f", "a\u0000b", '\\\\"', "'", '"']
    reply = (await running.embed(input=texts)).json()
    for text, entry in zip(texts, reply["data"], strict=True):
        assert np.array_equal(np.array(entry["embedding"], np.float32), vector(text)), text


async def test_order_over_many_chunks_whatever_order_replies_come_in(running: Running) -> None:
    """C6: and a second reply to the same chunk changes nothing. About two batches are in the queue at once."""
    running.worker.c_s = 0.001
    running.worker.announce()
    texts = [f"number {index} {'word ' * (index % 13)}" for index in range(100)]
    running.worker.is_holding = True
    pending = asyncio.ensure_future(running.embed(input=texts))
    chunks, held = running.worker.chunks, running.worker.held
    while sum(chunk.num_items for chunk in chunks) < 100 or held:
        await running.worker.wait_for(lambda: len(held) >= 2 or sum(chunk.num_items for chunk in chunks) == 100)
        window, held[:] = held[:], []
        assert len(window) <= 8
        for chunk, lease in reversed(window):
            running.worker.reply(chunk, lease)
            running.worker.reply(chunk)
    assert {chunk.priority for chunk in chunks} == {"bulk"}
    assert len(chunks) > 16
    data = (await pending).json()["data"]
    assert [entry["index"] for entry in data] == list(range(100))
    for text, entry in zip(texts, data, strict=True):
        assert np.array_equal(np.array(entry["embedding"], np.float32), vector(text))
    page = (await running.http.get("/metrics")).text
    assert "shoal_dropped_replies_total 0.0" not in page


async def test_a_literal_prompt(running: Running) -> None:
    reply = await running.embed(input="x", prompt="say: ")
    assert np.array_equal(np.array(reply.json()["data"][0]["embedding"], np.float32), vector("say: x"))
    both = await running.embed(input="x", prompt="say: ", prompt_name="query")
    assert (both.status_code, both.json()["error"]["param"]) == (400, "prompt")


async def test_dimensions(running: Running) -> None:
    """C26: cut where the model was trained for it, refused elsewhere and out of range; the full number is as absent."""
    cut = await running.embed(model="org/nested", input="x", dimensions=4)
    assert np.array_equal(np.array(cut.json()["data"][0]["embedding"], np.float32), vector("x", 4))
    full = await running.embed(input="x", dimensions=8)
    assert full.json() == (await running.embed(input="x")).json()
    assert all(chunk.options.dimensions in (None, 4) for chunk in running.worker.chunks)
    for model, dimensions in (("plain", 4), ("plain", 0), ("plain", 9), ("org/nested", -1), ("org/nested", 10**30)):
        refused = await running.embed(model=model, input="x", dimensions=dimensions)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "dimensions")


async def test_prompts(running: Running) -> None:
    """C4: by name, under both of its words; an unknown name lists the known ones."""
    pasted = (await running.embed(input="q: x")).json()["data"]
    assert (await running.embed(input="x", prompt_name="query")).json()["data"] == pasted
    assert (await running.embed(input="x", input_type="query")).json()["data"] == pasted
    unknown = (await running.embed(input="x", prompt_name="qurey")).json()["error"]
    assert unknown["param"] == "prompt_name"
    assert "query" in unknown["message"]
    assert (await running.embed(input="x", prompt_name="query", input_type="other")).status_code == 400


async def test_token_ids_need_a_name(running: Running) -> None:
    for sent in ([1, 2, 3], [[1, 2], [3]]):
        refused = (await running.embed(input=sent)).json()["error"]
        assert refused["param"] == "input"
        assert "check_embedding_ctx_length=False" in refused["message"]
        assert "input_tokenizer" in refused["message"]
    assert (await running.embed(input=[1], input_tokenizer="text-embedding-3-small")).status_code == 400
    one = await running.embed(input=[1, 2, 3], input_tokenizer="plain")
    assert len(one.json()["data"]) == 1
    assert np.array_equal(np.array(one.json()["data"][0]["embedding"], np.float32), vector([1, 2, 3]))
    assert len((await running.embed(input=[[1, 2], [3]], input_tokenizer="org/plain-model")).json()["data"]) == 2


async def test_truncation_is_told_in_a_header(running: Running) -> None:
    reply = await running.embed(input=["short", "long " * 50, "long " * 60])
    assert reply.headers["x-shoal-truncated"] == "2"
    assert reply.json()["usage"]["prompt_tokens"] == 3 + 16 + 16
    assert "x-shoal-truncated" not in (await running.embed(input="short")).headers


async def test_one_bad_item_is_named_in_the_requests_own_numbering(running: Running) -> None:
    texts = ["word " * 30] * 40
    texts[33] = "poison"
    reply = await running.embed(input=texts)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "input[33]"
    assert (await running.embed(input="fine")).status_code == 200


async def test_timing_and_request_ids(running: Running) -> None:
    """A client repeats its id when it tries again; the queue drops ids that it has seen; so chunks carry another."""
    for _ in range(2):
        reply = await running.http.post(
            "/v1/embeddings", json={"model": "plain", "input": "x"}, headers={"x-request-id": "my-own.id_7"}
        )
        assert reply.status_code == 200
        assert reply.headers["x-request-id"] == "my-own.id_7"
    stages = dict(part.strip().split(";dur=") for part in reply.headers["server-timing"].split(","))
    assert {name: float(value) for name, value in stages.items() if name != "total"} == {
        "queue": 1.0,
        "tokenize": 2.0,
        "batch": 3.0,
        "inference": 4.0,
    }
    assert float(stages["total"]) > 0
    replaced = await running.http.post(
        "/v1/embeddings", json={"model": "plain", "input": "x"}, headers={"x-request-id": "no spaces allowed"}
    )
    assert replaced.headers["x-request-id"] not in ("", "no spaces allowed")
    assert len({chunk.request_id for chunk in running.worker.chunks}) == 3


async def test_many_at_once(running: Running) -> None:
    async def one(index: int) -> None:
        texts = [f"{index} of many", f"{index} again"]
        data = (await running.embed(input=texts)).json()["data"]
        for text, entry in zip(texts, data, strict=True):
            assert np.array_equal(np.array(entry["embedding"], np.float32), vector(text))

    await asyncio.gather(*(one(index) for index in range(200)))
    assert running.gateway._dispatch.num_open_chunks == 0
