"""The gateway over a real broker, which dies with all that it held."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from gateway.answering import AnsweringWorker, vector
from shoal.gateway import Gateway
from shoal.gateway.server import Server
from shoal.queue.broker import Broker
from shoal.queue.jetstream import JetStreamQueue
from shoal.settings import GatewaySettings, QueueSettings


async def test_no_request_is_lost_when_the_broker_restarts() -> None:
    broker = Broker(port=0)
    await broker.start()
    settings = QueueSettings(queue=broker.url)
    queue, workers_queue = await JetStreamQueue.connect(settings), await JetStreamQueue.connect(settings)
    gateway, worker = Gateway(queue, GatewaySettings(), settings), AnsweringWorker(workers_queue)
    server = Server(gateway.app, GatewaySettings(port=0))
    await gateway.start()
    url = f"http://127.0.0.1:{await server.start()}"
    await worker.start()
    await asyncio.wait_for(gateway.wait_until_ready(), 20)
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:

        async def embed(text: str) -> list[float]:
            reply = await http.post("/v1/embeddings", json={"model": "plain", "input": [text, f"{text} again"]})
            assert reply.status_code == 200, reply.text
            return reply.json()["data"][1]["embedding"]  # type: ignore[no-any-return]

        worker.is_holding = True
        before = [asyncio.ensure_future(embed(f"text {i}")) for i in range(20)]
        await worker.wait_for(lambda: len(worker.held) == 20)
        await broker.stop()
        during = [asyncio.ensure_future(embed(f"text {i}")) for i in range(20, 25)]
        worker.is_holding = False
        broker = Broker(port=broker.port)
        await broker.start()
        for i, embedding in enumerate(await asyncio.gather(*before, *during)):
            assert embedding == pytest.approx(vector(f"text {i} again").tolist())
        assert len(worker.chunks) >= 45
    await server.stop(1.0)
    await gateway.stop()
    for each in (queue, workers_queue):
        await each.close()
    await broker.stop()
