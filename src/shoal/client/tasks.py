"""Calls that run side by side while their results are taken in order: for asyncio, and the same with threads.

The two classes have the same methods, so that the synchronous client can be generated from the asynchronous one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, wait
from typing import TypeVar

__all__ = ["AsyncTasks", "Tasks"]

T = TypeVar("T")

_GRACE_S = 0.5
"""After a failure, calls under way get so long to end: a call that outlives its client leaves an open connection."""


class AsyncTasks:
    """Runs coroutine functions as tasks of the running loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    async def in_order(self, calls: Iterable[Callable[[], Awaitable[T]]]) -> AsyncIterator[T]:
        """Yield the results in the order of `calls`, of which at most `limit` run at once; the next is asked for late.

        The first failure is raised in its turn; what still runs is then cancelled.
        """
        running: deque[asyncio.Future[T]] = deque()
        try:
            for call in calls:
                running.append(asyncio.ensure_future(call()))
                if len(running) == self._limit:
                    yield await running.popleft()
            while running:
                yield await running.popleft()
        finally:
            for future in running:
                future.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def results(self, calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
        """All of `in_order`."""
        return [result async for result in self.in_order(calls)]

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class Tasks:
    """Runs functions in threads.

    They are daemons, a thread a call: a call that is abandoned, after a failure or Ctrl-C, must not keep the process.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._abandoned = threading.Event()

    def in_order(self, calls: Iterable[Callable[[], T]]) -> Iterator[T]:
        """As `AsyncTasks.in_order`; what still runs after a failure ends at its next pause, its result is dropped."""
        running: deque[Future[T]] = deque()
        is_complete = False
        try:
            for call in calls:
                running.append(_start(call))
                if len(running) == self._limit:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
            is_complete = True
        finally:
            if not is_complete:
                self._abandoned.set()
                wait(running, _GRACE_S)

    def results(self, calls: Iterable[Callable[[], T]]) -> list[T]:
        """All of `in_order`."""
        return list(self.in_order(calls))

    def sleep(self, seconds: float) -> None:
        """Wait.

        Raises:
            CancelledError: nobody waits for this call any more.
        """
        if self._abandoned.wait(seconds):
            raise CancelledError


def _start(call: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="shoal-client", daemon=True).start()
    return future
