"""What is given up leaves a dead letter, is refused at once should it come again, and harms nobody else."""

import asyncio
import hashlib
import json
import os
import signal
import time
from typing import Any

import numpy as np
import pytest

from shoal.adapters.base import Prepared
from shoal.types import Gone, decode_chunk, decode_dead_letter, encode
from shoal.worker import dead_letters
from shoal.worker.dead_letters import Poison
from worker.station import LANE, SPEC, Station, expected, vectors


async def letters(one: Station) -> list[Any]:
    await one.worker.sidecar._dead_letters.close()
    return [decode_dead_letter(buried.body) for buried in await one.queue.buried("default")]


async def test_an_input_that_kills_the_host_leaves_a_letter_without_its_text(station: Any) -> None:
    one = await station(fake={"a_s": 0.001})
    items = ["innocent", "fault:crash"]
    refused, neighbour = await asyncio.gather(one.ask(items, first_item=40, tenant="acme"), one.ask(["neighbour"]))
    np.testing.assert_array_equal(vectors(neighbour), expected("neighbour"))
    assert refused.error.param == "input[41]"
    (letter,) = await letters(one)
    assert (letter.reason, letter.error, letter.chunk) == ("crashed", refused.error, b"")
    assert (letter.request_id, letter.num_items, letter.tenant) == (refused.request_id, 2, "acme")
    assert letter.digest == hashlib.sha256(json.dumps(items).encode()).hexdigest()
    assert b"innocent" not in encode(letter)
    assert await one.queue.depth(LANE) == 0
    assert one.worker.measures.dead_letters.value == 1


async def test_a_repeat_is_refused_at_once_and_its_neighbours_are_served(station: Any) -> None:
    one = await station()
    await one.ask(["fault:crash"])
    again, neighbour = await asyncio.gather(one.ask(["x", "fault:crash"]), one.ask(["x"]))
    assert "a short while ago" in again.error.message
    np.testing.assert_array_equal(vectors(neighbour), expected("x"))
    assert one.worker.measures.host_restarts.value == 3
    assert len(await letters(one)) == 1


async def test_the_texts_are_kept_if_the_operator_says_so(station: Any) -> None:
    one = await station(keep_dead_bodies=True)
    await one.ask(["fault:crash"])
    (letter,) = await letters(one)
    assert decode_chunk(letter.chunk).items == b'["fault:crash"]'


async def test_a_chunk_that_was_delivered_too_often_leaves_a_letter(station: Any) -> None:
    one = await station(max_deliveries=1)
    leases: asyncio.Queue[Any] = asyncio.Queue()
    model = next(iter(one.worker.sidecar.models.values()))
    await one.worker.sidecar._intake.close(model)
    pull = await one.queue.pull(LANE, leases.put_nowait)
    pull.grant(1)
    asked = one.ask_soon(["hello"])
    lease = await leases.get()
    await pull.close()
    lease.nak()
    model.is_open = True
    await one.worker.sidecar.open(model)
    assert "given up after 1 tries" in (await asked).error.message
    (letter,) = await letters(one)
    assert (letter.reason, letter.num_deliveries) == ("undelivered", 2)
    assert await one.queue.depth(LANE) == 0


def prepared(*ids: int) -> Prepared:
    return Prepared(np.array(ids, np.int32))


def test_deaths_are_counted_by_model_and_tokens_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "MAX_REMEMBERED", 2)
    now = 0.0
    poison = Poison(lambda: now)
    assert poison.count("m", prepared(1, 2)) == 0
    poison.add("m", [prepared(1, 2), prepared(3)])
    poison.add("m", [prepared(4), prepared(3), prepared(3)])  # twice in a batch is one death
    assert [poison.count("m", prepared(*ids)) for ids in ((1, 2), (3,), (4,), (5,))] == [0, 2, 1, 0]
    assert poison.count("another", prepared(3)) == 0
    poison.forget("m", prepared(4))
    assert poison.count("m", prepared(4)) == 0
    now = dead_letters.REMEMBERED_S
    assert poison.count("m", prepared(3)) == 0


async def test_deaths_are_counted_over_requests_so_that_one_who_tries_again_does_no_more_harm(station: Any) -> None:
    """Each caller's time runs out before the host has died three times."""
    one = await station()
    for _ in range(2):
        os.kill(one.worker.host_pid, signal.SIGSTOP)
        one.launched.clear()
        asked = one.ask_soon(["fault:crash"], deadline=time.time() + 0.3)
        await one.launched.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(asked), 0.4)
        os.kill(one.worker.host_pid, signal.SIGCONT)
        assert (await asked).error.code == "deadline_exceeded"
        np.testing.assert_array_equal(vectors(await one.ask(["hello"])), expected("hello"))
    assert "again and again" in (await one.ask(["fault:crash"])).error.message
    assert one.worker.measures.host_restarts.value == 3


async def test_work_of_a_caller_who_left_is_dropped_where_it_waits(station: Any) -> None:
    one = await station(fake={"a_s": 0.2})
    running = one.ask_soon(["running"])
    await one.launched.wait()
    model, pulled = one.worker.sidecar.models[SPEC.id], asyncio.Event()
    add = model.waiting.add
    model.waiting.add = lambda item, start: (add(item, start), len(model.waiting) < 2 or pulled.set())
    left, patient = one.ask_soon(["left"], request_id="left"), one.ask_soon(["patient"])
    await pulled.wait()
    one.queue.send("gone.default", encode(Gone(("left", "another"))))
    assert (await running).error is None
    assert (await patient).error is None
    assert not left.done()
    assert one.worker.sidecar.num_items == 2
    assert one.worker.measures.abandoned_held.value == 1
    assert await one.queue.depth(LANE) == 0
    left.cancel()


async def test_work_of_a_caller_who_left_before_it_came_is_dropped_at_the_pull(station: Any) -> None:
    one = await station()
    one.queue.send("gone.default", encode(Gone(("left",))))
    left = one.ask_soon(["left"], request_id="left")
    np.testing.assert_array_equal(vectors(await one.ask(["hello"])), expected("hello"))
    assert one.worker.measures.abandoned_at_pull.value == 1
    assert one.worker.sidecar.num_items == 1
    assert await one.queue.depth(LANE) == 0
    left.cancel()


async def test_a_kill_from_outside_costs_no_request_that_says_the_same_thing_often(station: Any) -> None:
    """One death is one, however many equal inputs the batch had."""
    one = await station(fake={"a_s": 0.3})
    one.launched.clear()
    asked = one.ask_soon(["same"] * 6)
    await one.launched.wait()
    os.kill(one.worker.host_pid, signal.SIGKILL)
    np.testing.assert_array_equal(vectors(await asked), expected(*["same"] * 6))
    np.testing.assert_array_equal(vectors(await one.ask(["same"])), expected("same"))
