"""Child processes that are kept running: workers, started with settings as their environment, and the broker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Never, Self

from shoal.errors import ShoalError
from shoal.lifeline import tied
from shoal.queue.broker import Broker
from shoal.settings import environment, inherited_environment

__all__ = ["Child", "kept_running"]

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0


class Child:
    """One supervised process, alive between `async with` and its end.

    It is asked to stop (SIGTERM) when this process dies. Settings travel as `SHOAL_*` variables, so that no secret
    stands in a process list.
    """

    def __init__(self, name: str, command: Sequence[str], *settings: Any, stop_s: float = 15.0) -> None:
        self.name = name
        self._command = tied(command, signal.SIGTERM)
        self._environment = environment(*settings)
        self._stop_s = stop_s

    async def __aenter__(self) -> Self:
        self._process = await self._start()
        self._watcher = asyncio.create_task(_watch(self.name, self._wait, self._restart), name=f"watch {self.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watcher.cancel()
        if self._process.returncode is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), self._stop_s)
        except TimeoutError:
            logger.warning("%s did not stop within %g s: killed", self.name, self._stop_s)
            self._process.kill()
            await self._process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        # A session of its own: Ctrl-C in a terminal reaches the parent alone, which then stops its children in order.
        return await asyncio.create_subprocess_exec(
            *self._command, env=inherited_environment() | self._environment, start_new_session=True
        )

    async def _wait(self) -> int:
        return await self._process.wait()

    async def _restart(self) -> None:
        self._process = await self._start()


@contextlib.asynccontextmanager
async def kept_running(broker: Broker) -> AsyncIterator[Broker]:
    """A broker that is started, and started again where it was whenever it ends."""
    async with broker:
        watcher = asyncio.create_task(_watch("the broker", broker.wait, broker.restart), name="watch broker")
        try:
            yield broker
        finally:
            watcher.cancel()
            await asyncio.wait([watcher])


async def _watch(name: str, wait: Callable[[], Awaitable[int]], start: Callable[[], Awaitable[None]]) -> Never:
    """Start a process again whenever it ends, after a pause that grows while it keeps ending early."""
    clock = asyncio.get_running_loop().time
    pause_s, started_at, is_running = _FIRST_PAUSE_S, clock(), True
    while True:
        if is_running:
            code = await wait()
            if clock() - started_at > _LONGEST_PAUSE_S:
                pause_s = _FIRST_PAUSE_S
            logger.warning("%s ended with %s; it starts again in %g s", name, code, pause_s)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        started_at = clock()
        try:
            await start()
        except (ShoalError, OSError) as error:
            logger.error("%s did not start, the next try is in %g s: %s", name, pause_s, error)
            is_running = False
        else:
            is_running = True
