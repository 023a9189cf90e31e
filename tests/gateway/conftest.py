"""A gateway on a real socket, over a queue in memory, with a worker that answers at once."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.answering import AnsweringWorker
from shoal.gateway import Gateway
from shoal.gateway.server import Server
from shoal.queue.base import Queue
from shoal.queue.memory import MemoryQueue
from shoal.settings import GatewaySettings, QueueSettings

SETTINGS = GatewaySettings(port=0, max_items=100, max_item_bytes=10_000, max_body_bytes=200_000, graceful_s=5.0)


@dataclasses.dataclass
class Running:
    """One gateway, its queue, its worker, and an HTTP client for it."""

    gateway: Gateway
    server: Server
    queue: Queue
    worker: AnsweringWorker
    http: httpx.AsyncClient
    url: str

    async def embed(self, route: str = "/v1/embeddings", **fields: Any) -> httpx.Response:
        return await self.http.post(route, json={"model": "org/plain-model", **fields})


@contextlib.asynccontextmanager
async def running_gateway(settings: GatewaySettings = SETTINGS, queue: Queue | None = None) -> AsyncIterator[Running]:
    queue = queue or MemoryQueue()
    worker = AnsweringWorker(queue)
    gateway = Gateway(queue, settings, QueueSettings())
    server = Server(gateway.app, settings)
    await gateway.start()
    url = f"http://127.0.0.1:{await server.start()}"
    await worker.start()
    await gateway.wait_until_ready()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=30, limits=limits) as http:
        yield Running(gateway, server, queue, worker, http, url)
    await server.stop(1.0)
    await gateway.stop()
    await queue.close()


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def shared() -> AsyncIterator[Running]:
    """One for all tests that only send requests."""
    async with running_gateway() as started:
        yield started


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with running_gateway() as started:
        yield started


Start = Callable[..., contextlib.AbstractAsyncContextManager[Running]]


@pytest.fixture
def start_gateway() -> Start:
    """To start one with other settings or another queue."""
    return running_gateway
