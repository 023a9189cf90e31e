"""One server, as new for each test, and both clients behind one asynchronous face, so that each test runs on both."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import shoal
from client.wire_server import WireServer, serving


@pytest.fixture(scope="session")
def running_server() -> Iterator[WireServer]:
    with serving() as running:
        yield running


@pytest.fixture
def server(running_server: WireServer) -> WireServer:
    running_server.reset()
    return running_server


class InThread:
    """The synchronous client, its methods made awaitable."""

    def __init__(self, client: shoal.Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(asyncio.to_thread, getattr(self._client, name))

    async def aclose(self) -> None:
        await asyncio.to_thread(self._client.close)


@pytest.fixture(params=["async", "sync"])
async def connect(request: pytest.FixtureRequest, server: WireServer) -> AsyncIterator[Callable[..., Any]]:
    """`connect(**arguments)`: a client of the server, closed at the end of the test."""
    opened: list[Any] = []

    def make(base_url: str | None = None, **arguments: Any) -> Any:
        kind = shoal.AsyncClient if request.param == "async" else shoal.Client
        client = kind(base_url or server.url, **arguments)
        opened.append(client if isinstance(client, shoal.AsyncClient) else InThread(client))
        return opened[-1]

    yield make
    for client in opened:
        await client.aclose()
