"""A thousand documents travel as chunks that several workers share, and come back as one ranking."""

from __future__ import annotations

import asyncio
import json

import httpx
import numpy as np

from shoal.adapters import open_adapter
from shoal.catalog import fake_spec
from shoal.gateway import Gateway
from shoal.queue.memory import MemoryQueue
from shoal.runtimes.fake import fake_logit
from shoal.settings import GatewaySettings, QueueSettings, WorkerSettings
from shoal.types import RerankOptions
from shoal.worker import Worker

SPEC = fake_spec("fake:ranker")
QUERY = "which document is it"


async def test_a_thousand_documents_are_shared_by_two_workers() -> None:
    queue, options = MemoryQueue(), json.dumps({"a_s": 0.002, "c_s": 2e-5})
    settings = WorkerSettings(runtime="fake", runtime_options=options, latency_objective_ms=30)
    workers = [Worker(queue, [SPEC], settings, QueueSettings(), preload=[SPEC.id]) for _ in range(2)]
    gateway = Gateway(queue, GatewaySettings(port=0), QueueSettings())
    await asyncio.gather(*(worker.start() for worker in workers))
    await asyncio.gather(*(worker.wait_ready() for worker in workers))
    await gateway.start()
    await gateway.wait_until_ready()
    documents = [f"document {number} " + "word " * (number % 40) for number in range(1000)]
    transport = httpx.ASGITransport(gateway.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shoal", timeout=60) as http:
        body = {"model": SPEC.id, "query": QUERY, "documents": documents, "raw_scores": True, "top_n": 1000}
        reply = (await http.post("/v1/rerank", json=body)).json()
    prepared = open_adapter(SPEC).prepare(documents, RerankOptions(QUERY))
    expected = np.array([fake_logit(pair.token_ids) for pair in prepared])
    order = np.argsort(-expected, kind="stable")
    assert [row["index"] for row in reply["results"]] == order.tolist()
    np.testing.assert_array_equal([row["relevance_score"] for row in reply["results"]], expected[order])
    assert all(worker.sidecar.num_items > 100 for worker in workers)
    assert sum(worker.sidecar.num_items for worker in workers) == 1000
    await gateway.stop()
    await asyncio.gather(*(worker.drain() for worker in workers))
    await queue.close()
