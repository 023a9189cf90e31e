"""Requests through queue, sidecar and a real runtime host: right answers in the right batches."""

import asyncio
import base64
import json
from typing import Any

import msgspec
import numpy as np

from shoal.catalog import fake_spec
from shoal.types import EmbedOptions, Render
from worker.station import SPEC, expected, vectors


async def test_a_lone_request_runs_at_once(station: Any) -> None:
    one = await station(fake={"a_s": 0.02})
    reply = await one.ask(["hello"])
    np.testing.assert_array_equal(vectors(reply), expected("hello"))
    assert (reply.num_tokens, reply.truncated, reply.outputs[0].dimensions) == ([2], [False], 8)
    assert reply.times.inference_s >= 0.02
    assert one.worker.sidecar.num_batches == 1


async def test_what_comes_together_goes_together_and_nothing_is_mixed_up(station: Any) -> None:
    one = await station(fake={"a_s": 0.005})
    texts = [f"text number {i} " * (1 + i % 7) for i in range(200)]
    replies = await asyncio.gather(*(one.ask([text]) for text in texts))
    np.testing.assert_array_equal(np.concatenate([vectors(reply) for reply in replies]), expected(*texts))
    assert one.worker.sidecar.num_items == 200
    assert one.worker.sidecar.num_items / one.worker.sidecar.num_batches > 4


async def test_while_the_device_is_busy_the_next_batch_stays_open(station: Any) -> None:
    """Three requests come one after another while the first runs: they leave as one batch, not as three."""
    one = await station(fake={"a_s": 0.15})
    running = one.ask_soon(["first"])
    await one.launched.wait()
    waiting = []
    for text in ("second", "third", "fourth"):
        waiting.append(one.ask_soon([text]))
        await asyncio.sleep(0)
    await asyncio.gather(running, *waiting)
    assert one.worker.sidecar.num_batches == 2


async def test_a_chunk_larger_than_a_batch_is_split_and_put_together_again(station: Any) -> None:
    one = await station(max_batch_tokens=512)
    texts = [f"{i:3} " * (5 + 13 * i % 90) for i in range(100)]
    reply = await one.ask(texts)
    np.testing.assert_array_equal(vectors(reply), expected(*texts))
    assert reply.num_tokens == [len(text) // 4 for text in texts]
    assert one.worker.sidecar.num_batches >= sum(reply.num_tokens) / 512


async def test_an_item_larger_than_the_largest_batch_still_runs(station: Any) -> None:
    one = await station(max_batch_tokens=64)
    long = "long " * 300
    replies = await asyncio.gather(one.ask([long]), one.ask(["short"]))
    np.testing.assert_array_equal(vectors(replies[0]), expected(long))
    np.testing.assert_array_equal(vectors(replies[1]), expected("short"))


async def test_requests_with_different_options_share_a_batch(station: Any) -> None:
    nested = msgspec.structs.replace(fake_spec("fake:nested"), matryoshka_dimensions=(4, 8))
    one = await station(nested, preload=("fake:nested",), fake={"a_s": 0.05})
    whole = expected("hello", spec=nested)
    openai = Render("base64", b'{"index":', True, b',"embedding":', b"}")
    replies = await asyncio.gather(
        one.ask(["hello"], model=nested.id),
        one.ask(["hello"], EmbedOptions(dimensions=4), model=nested.id),
        one.ask(["hello"], EmbedOptions(dtype="float16"), model=nested.id),
        one.ask(["hello"], EmbedOptions(dtype="int8"), model=nested.id),
        one.ask(["hello"], EmbedOptions(dtype="binary"), model=nested.id),
        one.ask(["hello"], model=nested.id, first_item=9, renders=(openai,)),
    )
    assert one.worker.sidecar.num_batches == 1
    np.testing.assert_array_equal(vectors(replies[0]), whole)
    cut = whole[:, :4] / np.linalg.norm(whole[:, :4])
    np.testing.assert_allclose(vectors(replies[1]), cut, atol=1e-6)
    np.testing.assert_allclose(vectors(replies[2], "<f2"), whole, atol=1e-3)
    np.testing.assert_allclose(vectors(replies[3], "i1") * replies[3].outputs[0].scales[0], whole, atol=0.01)
    np.testing.assert_array_equal(np.unpackbits(vectors(replies[4], "u1")), (whole > 0)[0])
    item = json.loads(replies[5].outputs[0].body)
    assert item["index"] == 9
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(item["embedding"]), "<f4"), whole[0])


async def test_two_models_share_the_device(station: Any) -> None:
    other = fake_spec("fake:other", dimensions=16)
    one = await station(SPEC, other, preload=(SPEC.id, other.id), fake={"a_s": 0.002})
    mine = [one.ask([f"text {i}"]) for i in range(40)]
    theirs = [one.ask([f"text {i}"], model=other.id) for i in range(40)]
    replies = await asyncio.gather(*mine, *theirs)
    texts = [f"text {i}" for i in range(40)]
    np.testing.assert_array_equal(np.concatenate([vectors(reply) for reply in replies[:40]]), expected(*texts))
    theirs_expected = expected(*texts, spec=other)
    np.testing.assert_array_equal(np.concatenate([vectors(reply) for reply in replies[40:]]), theirs_expected)


async def test_messagepack_items_and_large_chunks_take_the_same_road(station: Any) -> None:
    one = await station()
    texts = [f"{i} " * 50 for i in range(100)]
    packed = msgspec.msgpack.encode(texts)
    reply = await one.ask(packed, items_format="msgpack", num_items=100)
    np.testing.assert_array_equal(vectors(reply), expected(*texts))


async def test_every_lane_is_served(station: Any) -> None:
    one = await station()
    for priority in ("interactive", "default", "bulk"):
        np.testing.assert_array_equal(vectors(await one.ask(["hello"], priority=priority)), expected("hello"))


async def test_an_item_that_is_no_text_is_named_in_the_requests_own_numbering(station: Any) -> None:
    one = await station()
    for items, format, num_items, param in [
        (b'["good","\\ud800 lone"]', "json", 2, "input[11]"),
        (b'["\xff"]', "json", 1, "input[10]"),
        (b'["good",["a"]]', "json", 2, "input[11]"),
        (b"[[1.5]]", "json", 1, "input[10]"),
        (b"\x92\xa1a\xa1\xff", "msgpack", 2, "input[11]"),
    ]:
        reply = await one.ask(items, items_format=format, num_items=num_items, first_item=10)
        assert (reply.error.code, reply.error.param) == ("invalid_request", param), items
        assert param in reply.error.message
        assert (await one.ask(["plain"])).error is None


async def test_a_refused_item_fails_its_own_request_only(station: Any) -> None:
    one = await station(fake={"a_s": 0.01})
    long = "too long " * 1000
    refused, kept = await asyncio.gather(
        one.ask(["fine", long], EmbedOptions(overflow="error"), first_item=2), one.ask(["fine"])
    )
    assert (refused.error.code, refused.error.param) == ("context_length_exceeded", "input[3]")
    np.testing.assert_array_equal(vectors(kept), expected("fine"))


async def test_a_lora_that_is_not_there_is_refused(station: Any) -> None:
    one = await station()
    assert (await one.ask(["hello"], lora="sql")).error.code == "model_not_found"
