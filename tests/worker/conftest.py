"""Starts stations and closes them, whatever the test made of them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from worker.station import Station


@pytest.fixture
async def station() -> AsyncIterator[Any]:
    """`await station(fake={"a_s": 0.01})`: a station whose worker is ready; see `Station` for what it takes."""
    opened: list[Station] = []

    async def open_station(*specs: Any, preload: tuple[str, ...] | None = None, **options: Any) -> Station:
        one = Station(**options)
        opened.append(one)
        await one.start(*specs, **({} if preload is None else {"preload": preload}))
        return one

    yield open_station
    for one in opened:
        await one.close()
