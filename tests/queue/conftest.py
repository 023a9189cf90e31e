"""The fixtures: a broker, and a deployment of each implementation of the queue."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.queue.deployments import Deployment, JetStreamDeployment, MemoryDeployment

from shoal.queue.broker import Broker


@pytest.fixture
async def jetstream() -> AsyncIterator[JetStreamDeployment]:
    async with Broker(port=0) as broker:
        place = JetStreamDeployment(broker)
        yield place
        await place.close()


@pytest.fixture(params=["memory", "jetstream"])
async def deployment(request: pytest.FixtureRequest) -> AsyncIterator[Deployment]:
    if request.param == "memory":
        place = MemoryDeployment()
        yield place
        await place.close()
    else:
        async with Broker(port=0) as broker:
            remote = JetStreamDeployment(broker)
            yield remote
            await remote.close()
