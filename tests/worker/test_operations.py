"""Every operation and output through a worker, with the fake device: rows stay with their items in any batch."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np

from shoal.adapters import open_adapter
from shoal.adapters.base import runs_by_item
from shoal.runtimes.fake import fake_logit, fake_sparse
from shoal.types import ChunkReply, ClassifyOptions, EmbedOptions, Render, RerankOptions, TokenizeOptions
from worker.station import SPEC, expected, vectors

RAW, JSON = Render("raw"), Render("json")
QUERY = RerankOptions("the query", raw_scores=True)
TEXTS = ["one", "a second text that is longer", "", "the fourth", "one"]


def logits(texts: list[str], options: Any) -> np.ndarray:
    return np.array([fake_logit(item.token_ids) for item in open_adapter(SPEC).prepare(texts, options)])


def check_sparse(reply: ChunkReply, output: int, texts: list[str]) -> None:
    part = reply.outputs[output]
    indices = np.frombuffer(part.body[: len(part.body) // 2], "<i4")
    values = np.frombuffer(part.body[len(part.body) // 2 :], "<f4")
    ends = np.cumsum(part.lengths)[:-1]
    rows = zip(np.split(indices, ends), np.split(values, ends), strict=True)
    items = open_adapter(SPEC).prepare(texts, EmbedOptions())
    for (own_indices, own_values), item in zip(rows, items, strict=True):
        wanted_indices, wanted_values = fake_sparse(item.token_ids)
        np.testing.assert_array_equal(own_indices, wanted_indices)
        np.testing.assert_array_equal(own_values, wanted_values)


async def test_operations_share_a_batch(station: Any) -> None:
    one = await station(fake={"a_s": 0.05})
    both = EmbedOptions(outputs=("sparse", "dense"))
    embedded, ranked, classified, plain = await asyncio.gather(
        one.ask(TEXTS, both, renders=(RAW, RAW)),
        one.ask(TEXTS, QUERY),
        one.ask(TEXTS, ClassifyOptions(raw_scores=True), renders=(JSON,)),
        one.ask(TEXTS),
    )
    assert one.worker.sidecar.num_batches == 1
    np.testing.assert_array_equal(vectors(plain), expected(*TEXTS))
    np.testing.assert_array_equal(np.frombuffer(embedded.outputs[1].body, "<f4").reshape(5, -1), expected(*TEXTS))
    check_sparse(embedded, 0, TEXTS)
    np.testing.assert_array_equal(np.frombuffer(ranked.outputs[0].body, "<f4"), logits(TEXTS, QUERY))
    labels = msgspec.json.decode(b"[" + classified.outputs[0].body + b"]")
    assert [row[0]["label"] for row in labels] == ["relevant"] * 5
    np.testing.assert_allclose([row[0]["score"] for row in labels], logits(TEXTS, ClassifyOptions()), rtol=1e-6)
    pairs = open_adapter(SPEC).prepare(TEXTS, QUERY)
    assert ranked.num_tokens == [pair.cost for pair in pairs]


async def test_ragged_rows_that_come_in_several_batches_keep_their_order(station: Any) -> None:
    one = await station(max_batch_tokens=600)
    texts = [f"text {number} " + "word " * (number * 37 % 90) for number in range(60)]
    reply = await one.ask(texts, EmbedOptions(outputs=("sparse",)))
    assert one.worker.sidecar.num_batches > 1
    check_sparse(reply, 0, texts)


async def test_what_the_model_cannot_do_is_refused_by_the_worker_too(station: Any) -> None:
    embedder = msgspec.structs.replace(SPEC, id="fake:plain", classifier=None, sparse=None)
    one = await station(embedder, preload=(embedder.id,))
    for options, param in ((ClassifyOptions(), "model"), (EmbedOptions(outputs=("sparse",)), "outputs")):
        reply = await one.ask(["a"], options, model=embedder.id)
        assert reply.error is not None
        assert (reply.error.code, reply.error.param) == ("unsupported_operation", param)


async def test_an_embedder_ranks_by_cosine_and_counts_no_query(station: Any) -> None:
    embedder = msgspec.structs.replace(SPEC, id="fake:plain", classifier=None, sparse=None)
    one = await station(embedder, preload=(embedder.id,))
    reply = await one.ask(TEXTS, RerankOptions("the query"), model=embedder.id)
    rows = expected("the query", *TEXTS, spec=embedder)
    np.testing.assert_allclose(np.frombuffer(reply.outputs[0].body, "<f4"), rows[1:] @ rows[0], atol=1e-6)
    assert len(reply.num_tokens) == len(reply.truncated) == len(TEXTS)
    refused = await one.ask(TEXTS, RerankOptions("a long query " * 300), model=embedder.id)
    assert refused.error is not None
    assert (refused.error.code, refused.error.param) == ("context_length_exceeded", "query")


async def test_a_score_that_is_not_a_number_is_an_error(station: Any) -> None:
    one = await station()
    good, bad = await asyncio.gather(one.ask(["good"], QUERY), one.ask(["fault:nan"], QUERY))
    assert good.error is None
    assert bad.error is not None
    assert bad.error.code == "internal_error"


async def test_tokens_need_no_device(station: Any) -> None:
    """They come by the same way as all else and are counted, and are answered while the host restarts."""
    one = await station()
    sidecar = one.worker.sidecar
    sidecar.host_exited()
    waiting = one.ask_soon(TEXTS)
    reply = await one.ask(TEXTS, TokenizeOptions(), renders=(JSON,))
    assert (sidecar.num_batches, waiting.done()) == (0, False)
    sidecar.resume()
    np.testing.assert_array_equal(vectors(await waiting), expected(*TEXTS))
    rows = msgspec.json.decode(b"[" + reply.outputs[0].body + b"]")
    assert reply.num_tokens == [len(row["ids"]) for row in rows]
    for text, row in zip(TEXTS, rows, strict=True):
        assert "".join(text[start:end] for start, end in row["offsets"]) == text


async def test_a_long_text_in_windows_is_one_item(station: Any) -> None:
    one = await station()
    chunked = EmbedOptions(overflow="chunk")
    text = "all these words " * 400
    reply = await one.ask(["short", text], chunked)
    runs = runs_by_item(open_adapter(SPEC).prepare(["short", text], chunked))
    assert len(runs[0]) == 1 < len(runs[1])
    assert reply.num_tokens == [sum(run.cost for run in of_item) for of_item in runs]
    assert reply.truncated == [False, False]
    rows = vectors(reply)
    np.testing.assert_array_equal(rows[0], expected("short")[0])
    alone = vectors(await one.ask([text], chunked))
    np.testing.assert_array_equal(rows[1], alone[0])
