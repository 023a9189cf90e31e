"""Long and short requests at one worker: a real gateway, socket and worker; the device takes 8 ms a batch.

What is asserted are orders and numbers of batches, never times.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from shoal.gateway import Gateway
from shoal.gateway.server import Server
from shoal.settings import GatewaySettings
from worker.station import SPEC, Station, expected

SETTINGS = GatewaySettings(port=0, max_items=10_000, graceful_s=1.0)
TEXTS_A_CHUNK = 7
QUANTUM = 512


def texts(name: str, num_chunks: int) -> list[str]:
    """So many chunks' worth: 64 tokens a text."""
    return [f"{name} {index:>6} ".ljust(256, "x") for index in range(num_chunks * TEXTS_A_CHUNK)]


class Served:
    """A station behind a gateway, and a client."""

    def __init__(self, one: Station, http: httpx.AsyncClient) -> None:
        self.one = one
        self.http = http

    @property
    def num_batches(self) -> int:
        return self.one.worker.sidecar.num_batches

    async def embed(self, *items: str) -> npt.NDArray[np.float32]:
        """float32 [num_items, dimensions]."""
        body = {"model": SPEC.id, "input": items, "encoding_format": "base64"}
        reply = await self.http.post("/v1/embeddings", json=body)
        assert reply.status_code == 200, reply.text
        data = reply.json()["data"]
        assert [entry["index"] for entry in data] == list(range(len(items)))
        return np.stack([np.frombuffer(base64.b64decode(entry["embedding"]), "<f4") for entry in data])

    async def batches_until(self, *items: str) -> int:
        """How many batches were started until these were answered."""
        before = self.num_batches
        await self.embed(*items)
        return self.num_batches - before


@pytest.fixture
async def served(station: Any) -> AsyncIterator[Served]:
    one = await station(
        fake={"a_s": 0.003, "c_s": 1e-5}, latency_objective_ms=50.0, max_batch_tokens=QUANTUM, drain_s=1.0
    )
    gateway = Gateway(one.queue, SETTINGS, one.queue_settings)
    server = Server(gateway.app, SETTINGS)
    await gateway.start()
    port = await server.start()
    await gateway.wait_until_ready()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=100) as http:
        yield Served(one, http)
    await server.stop(1.0)
    await gateway.stop()


async def test_short_requests_do_not_wait_for_a_long_one(served: Served) -> None:
    long = texts("long", 200)
    pending = asyncio.ensure_future(served.embed(*long))
    await served.one.launched.wait()
    waits = await asyncio.gather(*(served.batches_until(f"short {index}") for index in range(20)))
    assert not pending.done()
    assert max(waits) < 25
    np.testing.assert_array_equal(await pending, expected(*long))


async def test_long_requests_take_turns(served: Served) -> None:
    before = served.num_batches
    waits = [asyncio.ensure_future(served.batches_until(*texts(name, 60))) for name in "abc"]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    until_first = served.num_batches - before
    await asyncio.gather(*waits)
    assert until_first > 0.75 * (served.num_batches - before)


async def test_a_long_request_alone_keeps_the_worker_full(served: Served) -> None:
    held: list[int] = []
    model, launch = served.one.worker.sidecar.models[SPEC.id], served.one.worker.sidecar._launch

    def spy(batch: Any) -> None:
        held.append(model.held_tokens)
        launch(batch)

    served.one.worker.sidecar._launch = spy  # type: ignore[method-assign]
    await served.embed(*texts("alone", 60))
    assert np.median(held) >= 1.5 * QUANTUM
    assert len(held) <= 66


async def test_a_long_request_goes_on_while_short_ones_fill_the_worker(served: Served) -> None:
    long = asyncio.ensure_future(served.embed(*texts("long", 20)))
    await served.one.launched.wait()

    async def ask_on(name: str) -> None:
        while not long.done():
            await served.embed(*texts(name, 1))

    before = served.num_batches

    await asyncio.gather(*(ask_on(f"short {index}") for index in range(8)))
    assert long.result().shape[0] == 20 * TEXTS_A_CHUNK
    assert served.num_batches - before < 400
