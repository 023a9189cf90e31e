"""The same worker over a real broker: two of them share the work, and a host that is killed loses none of it."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
import pytest

from shoal.catalog import fake_spec
from shoal.queue import open_queue
from shoal.queue.broker import Broker
from shoal.settings import QueueSettings
from shoal.types import Demand, encode
from shoal.worker import Worker, budget
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


async def test_models_that_do_not_fit_together_take_turns_and_lose_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits in a lane stays there when its model has to go, and is answered when it is back."""
    monkeypatch.setattr(budget, "LEAST_BUSY_S", 0.1)
    specs = {f"fake:{name}": fake_spec(f"fake:{name}") for name in "ab"}
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(Broker(port=0))
        queue = await open_queue(QueueSettings(queue=broker.url))
        fake = {"a_s": 0.02, "bytes": 100}
        one = Station(queue=queue, fake=fake, max_batch_items=2, memory_budget="150")
        stack.push_async_callback(one.close)
        await one.start(*specs.values(), preload=("fake:a",))
        asked = {
            (model, i): one.ask_soon([f"text {i}"], model=model, request_id=f"{model} {i}")
            for i in range(60)
            for model in specs
        }
        while missing := {model for (model, _), reply in asked.items() if not reply.done()}:
            for model in missing - one.worker.residency.ready_ids:  # as a gateway does, while somebody waits for it
                queue.send("demand.default", encode(Demand("chosen", model, one.worker.id)))
            left = [reply for reply in asked.values() if not reply.done()]
            await asyncio.wait(left, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
        for (model, i), reply in asked.items():
            np.testing.assert_array_equal(vectors(reply.result()), expected(f"text {i}", spec=specs[model]))
        assert one.worker.measures.evictions.value >= 1
        assert one.worker.measures.dead_letters.value == 0
