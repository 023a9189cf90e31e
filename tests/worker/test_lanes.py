"""Lanes at one worker: the urgent one goes first, no flood of one starves another. Batches are counted, not time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shoal.types import Priority
from worker.station import Station


@pytest.fixture
async def slow(station: Any) -> Station:
    """Four texts a batch, 5 ms each batch."""
    one: Station = await station(fake={"a_s": 0.005}, max_batch_items=4, latency_objective_ms=50.0)
    return one


async def batches_until(one: Station, text: str, priority: Priority) -> int:
    """How many batches were started until this was answered."""
    before = one.worker.sidecar.num_batches
    assert (await one.ask([text], priority=priority)).error is None
    return one.worker.sidecar.num_batches - before


async def test_an_interactive_request_passes_a_queue_of_others(slow: Station) -> None:
    others = [slow.ask_soon([f"text {i}"], priority=("default", "bulk")[i % 2]) for i in range(400)]
    await slow.launched.wait()
    assert await batches_until(slow, "urgent", "interactive") < 15
    assert sum(other.done() for other in others) < 100
    await asyncio.gather(*others)


@pytest.mark.parametrize("flooded", ["interactive", "default"])
@pytest.mark.parametrize("priority", ["default", "bulk"])
async def test_a_flood_in_one_lane_starves_no_other(slow: Station, flooded: Priority, priority: Priority) -> None:
    is_over = False

    async def ask_on(number: int) -> None:
        while not is_over:
            await slow.ask([f"flood {number}"], priority=flooded)

    flood = [asyncio.create_task(ask_on(number)) for number in range(64)]
    await slow.launched.wait()
    waits = await asyncio.gather(*(batches_until(slow, f"quiet {i}", priority) for i in range(3)))
    is_over = True
    await asyncio.gather(*flood)
    assert max(waits) < 100
