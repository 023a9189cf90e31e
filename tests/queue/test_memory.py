"""What only the queue in memory promises."""

from __future__ import annotations

import asyncio

import pytest
from tests.queue.deployments import LANE, Arrivals

from shoal.errors import Overloaded
from shoal.queue.memory import MemoryQueue


async def test_a_message_is_delivered_in_the_next_turn_of_the_loop() -> None:
    queue = MemoryQueue()
    arrivals = Arrivals()
    (await queue.pull(LANE, arrivals)).grant(1)
    await asyncio.sleep(0)
    await queue.publish(LANE, "id", b"body")
    assert not arrivals.all
    await asyncio.sleep(0)
    assert arrivals.bodies == [b"body"]
    await queue.close()


async def test_it_holds_so_many_bytes_and_no_more() -> None:
    queue = MemoryQueue(max_bytes=10)
    await queue.publish(LANE, "id0", b"12345678")
    with pytest.raises(Overloaded, match="8 of at most 10 bytes"):
        await queue.publish(LANE, "id1", b"123")
    await queue.publish(LANE, "id2", b"12")
    arrivals = Arrivals()
    (await queue.pull(LANE, arrivals)).grant(1)
    (lease,) = await arrivals.reach(1)
    lease.ack()
    await queue.publish(LANE, "id1", b"123")  # refused before, so not a duplicate
    assert await queue.depth(LANE) == 2
    await queue.close()
