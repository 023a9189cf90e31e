"""The fixture that runs a test once for each implementation of the queue."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.queue.deployments import Deployment, MemoryDeployment


@pytest.fixture(params=["memory"])
async def deployment(request: pytest.FixtureRequest) -> AsyncIterator[Deployment]:
    place = MemoryDeployment()
    yield place
    await place.close()
