"""A deployment for each implementation: one place that holds messages, and any number of handles to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from shoal.queue.base import Lease, Queue
from shoal.queue.broker import Broker
from shoal.queue.jetstream import JetStreamOptions, JetStreamQueue
from shoal.queue.memory import MemoryQueue
from shoal.settings import QueueSettings
from shoal.types import Lane

LANE = Lane("default", "org/model-a")


class Arrivals:
    """A callback that keeps what it is given, and lets a test wait for the n-th of it."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._news = asyncio.Condition()
        self.react: Callable[[Any], None] = lambda arrival: None

    def __call__(self, arrival: Any) -> None:
        self.all.append(arrival)
        self.react(arrival)
        self._wake = asyncio.ensure_future(self._notify())

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def reach(self, count: int, timeout_s: float = 20.0) -> list[Any]:
        return await self.until(lambda arrivals: len(arrivals) >= count, timeout_s)

    async def until(self, is_enough: Callable[[list[Any]], bool], timeout_s: float = 20.0) -> list[Any]:
        async with asyncio.timeout(timeout_s), self._news:
            await self._news.wait_for(lambda: is_enough(self.all))
        return self.all

    @property
    def bodies(self) -> list[bytes]:
        return [arrival.body if hasattr(arrival, "body") else arrival for arrival in self.all]


def ack(lease: Lease) -> None:
    lease.ack()


class MemoryDeployment:
    """All handles are the one queue."""

    def __init__(self) -> None:
        self._queue: MemoryQueue | None = None

    async def connect(self, lease_s: float = 20.0) -> Queue:
        if self._queue is None:
            self._queue = MemoryQueue(lease_s=lease_s)
        return self._queue

    async def close(self) -> None:
        if self._queue is not None:
            await self._queue.close()


class JetStreamDeployment:
    """All handles are connections of their own to one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._queues: list[JetStreamQueue] = []

    async def connect(self, lease_s: float = 20.0, options: JetStreamOptions | None = None) -> JetStreamQueue:
        settings = QueueSettings(queue=self.broker.url, lease_s=lease_s)
        queue = await JetStreamQueue.connect(settings, options)
        self._queues.append(queue)
        return queue

    async def close(self) -> None:
        await asyncio.gather(*(queue.close() for queue in self._queues))


Deployment = MemoryDeployment | JetStreamDeployment
