"""The same worker over a real broker: two of them share the work, and a host that is killed loses none of it."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from typing import Any

import numpy as np

from shoal.queue import open_queue
from shoal.queue.broker import Broker
from shoal.settings import QueueSettings
from shoal.worker import Worker
from worker.station import SPEC, Station, expected, vectors


async def test_two_workers_share_the_work_and_a_killed_host_loses_nothing() -> None:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(Broker(port=0))
        settings = QueueSettings(queue=broker.url)
        queues = [await open_queue(settings) for _ in range(2)]
        one = Station(queue=queues[0], fake={"a_s": 0.005}, max_batch_items=8)
        stack.push_async_callback(queues[1].close)
        stack.push_async_callback(one.close)
        await one.start()
        two = Worker(queues[1], [SPEC], one.settings, settings, preload=[SPEC.id])
        stack.push_async_callback(two.drain)
        await two.start()
        await two.wait_ready()
        texts = [f"text number {i}" for i in range(300)]
        asked = [one.ask_soon([text]) for text in texts]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        killed: Any = one.worker.host_pid
        os.kill(killed, signal.SIGKILL)
        replies = await asyncio.gather(*asked)
        np.testing.assert_array_equal(np.concatenate([vectors(reply) for reply in replies]), expected(*texts))
        assert one.worker.sidecar.num_items >= 8
        assert two.sidecar.num_items > 50
