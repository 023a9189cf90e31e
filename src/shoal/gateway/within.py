"""A limit of time for work that mostly has not to wait at all. It must not know what the work is."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

__all__ = ["within"]

T = TypeVar("T")


async def within(limit_s: float, work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives; a timer is set only if it has to wait.

    Raises:
        TimeoutError: it was not done after so long.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    async with asyncio.timeout(limit_s):
        return await _Rest(work, waits_for)


class _Rest(Generic[T]):
    """A coroutine from where it began to wait."""

    def __init__(self, work: Coroutine[Any, Any, T], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        waits_for = self._waits_for
        while True:
            try:
                try:
                    sent = yield waits_for
                except BaseException as error:  # it is the work that is cancelled
                    waits_for = self._work.throw(error)
                else:
                    waits_for = self._work.send(sent)
            except StopIteration as done:
                result: T = done.value
                return result
