"""Runs a coroutine on uvloop until it ends or a signal stops it. The only place that installs signal handlers."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable

import uvloop

__all__ = ["run_until_signal"]

_COLLECT_AFTER = 10_000
"""New objects between two collections: some hundred requests' worth."""


def run_until_signal(main: Callable[[asyncio.Event], Awaitable[int]]) -> int:
    """Call `main(stopping)` and return its exit code.

    SIGINT and SIGTERM set `stopping`, and main then ends in its own time; a second signal ends the process at once.
    """

    async def supervise() -> int:
        _calm_collector()
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_signal(number: int) -> None:
            if stopping.is_set():
                os._exit(128 + number)
            stopping.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number)
        return await main(stopping)

    previous = signal.getsignal(signal.SIGINT)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(supervise())
    finally:
        signal.signal(signal.SIGINT, previous)  # the loop has put Python's own in its place


def _calm_collector() -> None:
    """Let garbage collections look at requests only, and less often.

    What is imported by now stays to the end, and a full collection that walks it all stops the server for 100 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, *gc.get_threshold()[1:])
