"""What a worker leaves in the queue, and what it takes: a busy one nothing before it is time, then a full batch."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import numpy as np
import pytest
from tests.queue.deployments import Arrivals, ack

from shoal.catalog import fake_spec
from shoal.queue import open_queue
from shoal.queue.broker import Broker
from shoal.queue.rumour import Rumours
from shoal.settings import QueueSettings
from shoal.types import Chunk, EmbedOptions, Lane, Render, encode
from shoal.worker.cost import CostModel
from worker.station import SPEC, Station, expected, vectors

OTHER = fake_spec("fake:other")
MANY = 20


async def publish(one: Station, model: str, number: int) -> None:
    """Put a chunk into a lane; nobody waits for the reply."""
    body = json.dumps([f"text {number}"]).encode()
    chunk = Chunk(f"{model} {number}", 0, model, EmbedOptions(), body, "json", 1, 0, 4, "reply.nobody", (Render(),),
                  deadline=time.time() + 60)  # fmt: skip
    await one.queue.publish(Lane("default", model), chunk.chunk_id, encode(chunk))


async def make_busy(one: Station) -> None:
    """Give the device a batch that should take a minute."""
    for model in one.worker.sidecar.models.values():
        model.cost = CostModel(60.0, 0.0)
    one.ask_soon(["fault:hang"])
    await one.launched.wait()


@pytest.mark.parametrize("model", [SPEC.id, OTHER.id], ids=["of its model", "of another"])
async def test_what_comes_while_a_worker_is_busy_is_there_for_an_idle_one(station: Any, model: str) -> None:
    busy: Station = await station(SPEC, OTHER, preload=(SPEC.id, OTHER.id), drain_s=0.0)
    await make_busy(busy)
    for number in range(MANY):
        await publish(busy, model, number)
    idle = Arrivals()
    idle.react = ack
    (await busy.queue.pull(Lane("default", model), idle)).grant(MANY)
    await idle.reach(MANY)


async def test_a_worker_that_gave_back_what_came_too_early_keeps_it_in_the_end(station: Any) -> None:
    """Nobody else is there to take it: it is not handed round until it counts as poison."""
    busy: Station = await station(SPEC, OTHER, preload=(SPEC.id, OTHER.id), drain_s=0.0)
    await make_busy(busy)
    asked = busy.ask_soon(["early"], model=OTHER.id)
    taps = busy.worker.sidecar._taps
    while not taps._told:
        await asyncio.wait([asked], timeout=0.01)
    for _ in range(10):
        taps._quiet = set(taps._spent)
        taps.look_round()
        await asyncio.wait([asked], timeout=0.01)
    (held,) = busy.worker.sidecar.replies.of(busy.worker.sidecar.models[OTHER.id])
    assert held.lease.delivery_count < 5


async def test_a_batch_is_taken_full(station: Any) -> None:
    one: Station = await station(fake={"a_s": 0.05}, max_batch_items=25)
    asked = [one.ask_soon([f"text {number}"]) for number in range(200)]
    for number, reply in enumerate(await asyncio.gather(*asked)):
        np.testing.assert_array_equal(vectors(reply), expected(f"text {number}"))
    assert one.worker.sidecar.num_batches <= 11


async def test_the_lane_that_waits_longest_goes_next(station: Any) -> None:
    """Whatever the order in which lanes became known, or how much waits in them."""
    one: Station = await station(SPEC, OTHER, preload=(SPEC.id, OTHER.id), fake={"a_s": 0.05}, max_batch_items=4)
    order: list[str] = []
    launch = one.worker.sidecar._launch
    one.worker.sidecar._launch = lambda batch: (order.append(batch.model.id), launch(batch))  # type: ignore[method-assign]
    first = one.ask_soon(["first"])
    await one.launched.wait()
    asked = [one.ask_soon(["a"], model=OTHER.id), *(one.ask_soon([f"b {number}"]) for number in range(12))]
    await asyncio.gather(first, *asked)
    assert order == [SPEC.id, OTHER.id, SPEC.id, SPEC.id, SPEC.id], order


async def test_a_flood_of_one_model_starves_no_other_though_every_notice_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Rumours, "hear", lambda rumours, body: None)
    async with Broker(port=0) as broker:
        queue = await open_queue(QueueSettings(queue=broker.url))
        one = Station(queue=queue, fake={"a_s": 0.05}, max_batch_items=4, lease_s=1.5)
        try:
            await one.start(SPEC, OTHER, preload=(SPEC.id, OTHER.id))
            is_over = False

            async def ask_on(number: int) -> None:
                while not is_over:
                    await one.ask([f"flood {number}"])

            flood = [asyncio.create_task(ask_on(number)) for number in range(16)]
            await one.launched.wait()
            for number in range(4):
                reply = await one.ask([f"quiet {number}"], model=OTHER.id)
                np.testing.assert_array_equal(vectors(reply), expected(f"quiet {number}", spec=OTHER))
            is_over = True
            await asyncio.gather(*flood)
        finally:
            await one.close()


async def test_a_wake_up_that_was_lost_costs_a_part_of_a_lease_and_not_the_request(
    station: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one: Station = await station(lease_s=0.6)
    sidecar, lost = one.worker.sidecar, asyncio.Event()
    with monkeypatch.context() as patch:
        patch.setattr(sidecar, "_pump_soon", lost.set)
        asked = one.ask_soon(["forgotten"])
        while not sidecar.models[SPEC.id].waiting:
            lost.clear()
            await lost.wait()
    np.testing.assert_array_equal(vectors(await asked), expected("forgotten"))
