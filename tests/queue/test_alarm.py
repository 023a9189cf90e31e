"""One timer for whoever wants to be woken earliest, on both event loops: uvloop hands out some that tell no time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import pytest
import uvloop

from shoal.queue.alarm import Alarm


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_an_alarm_rings_once_at_the_earliest_time(run: Callable[..., None]) -> None:
    async def main() -> None:
        loop, has_rung, times = asyncio.get_running_loop(), asyncio.Event(), []

        def ring() -> None:
            times.append(alarm.rings_at)
            has_rung.set()

        alarm = Alarm(ring)
        now = loop.time()
        for when in (now + 60, now - 0.001, now, now + 30):
            alarm.set(when)
        assert alarm.rings_at == now - 0.001
        await has_rung.wait()
        has_rung.clear()
        alarm.set(now)
        alarm.clear()
        assert alarm.rings_at == math.inf
        alarm.set(loop.time() + 0.002)
        await has_rung.wait()
        assert times == [math.inf, math.inf]

    run(main())
