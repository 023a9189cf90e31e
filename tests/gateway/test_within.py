"""A limit of time that costs no timer unless there is something to wait for."""

from __future__ import annotations

import asyncio

import pytest

from shoal.gateway.within import within


async def test_what_need_not_wait_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "timeout", None)

    async def work() -> int:
        return 3

    async def fail() -> int:
        raise KeyError("a")

    assert await within(20.0, work()) == 3
    with pytest.raises(KeyError):
        await within(20.0, fail())


async def test_what_waits_goes_on_when_it_may() -> None:
    first, second = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        await first.wait()
        try:
            await asyncio.wait_for(second.wait(), 0.0)
        except TimeoutError:
            await second.wait()
        return "done"

    task = asyncio.create_task(within(20.0, work()))
    for event in (first, second):
        await asyncio.sleep(0)
        assert not task.done()
        event.set()
    assert await task == "done"


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_work_is_ended_by_the_limit_and_by_who_cancels(is_cancelled: bool) -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    task = asyncio.create_task(within(20.0 if is_cancelled else 0.0, work()))
    await asyncio.sleep(0)
    if is_cancelled:
        task.cancel()
    with pytest.raises(asyncio.CancelledError if is_cancelled else TimeoutError):
        await task
    assert ended == [True]
