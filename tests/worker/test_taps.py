"""What a worker draws from, over the queue in memory."""

from __future__ import annotations

import asyncio
from functools import partial

from shoal.queue.base import Lease
from shoal.queue.memory import MemoryQueue
from shoal.types import Lane
from shoal.worker.cost import CostModel
from shoal.worker.taps import Tap, Taps
from worker.test_work import model


async def test_what_is_told_of_a_lane_that_is_being_opened_is_not_lost() -> None:
    """Another worker's rumour may come before our own pull is there; messages that wait come once it is drawn from."""
    queue, came = MemoryQueue(), asyncio.Event()
    taps = Taps(lambda tap: 0.0, 1.0, lambda: None)
    tap = Tap(model(CostModel(0.001, 0.0001)), "default")
    lane = Lane("pool", "m", "default")

    def receive(lease: Lease) -> None:
        taps.came(tap)
        lease.ack()
        came.set()

    await queue.publish(lane, "one", b"body")
    taps.tell(tap)
    taps.take(is_idle=True)
    tap.pull = await queue.pull(lane, receive, partial(taps.tell, tap))
    taps.take(is_idle=False)
    assert not came.is_set(), "it came before anything was to be drawn from there"
    taps.add([tap])
    await asyncio.wait_for(came.wait(), 10)
    await tap.pull.close()
    await queue.close()
