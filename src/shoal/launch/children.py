"""A child process that is kept running: started with settings as its environment, restarted when it dies."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from shoal.settings import environment, inherited_environment

__all__ = ["Child"]

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0


class Child:
    """One supervised process, alive between `async with` and its end.

    Settings travel as `SHOAL_*` variables, so that no secret stands in a process list.
    """

    def __init__(self, name: str, command: Sequence[str], *settings: Any, stop_s: float = 15.0) -> None:
        self.name = name
        self._command = command
        self._environment = environment(*settings)
        self._stop_s = stop_s

    async def __aenter__(self) -> Self:
        self._process = await self._start()
        self._watcher = asyncio.create_task(self._watch(), name=f"watch {self.name}")
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

    async def _watch(self) -> None:
        """Start the process again whenever it ends, after a pause that grows while it keeps ending early."""
        clock = asyncio.get_running_loop().time
        pause_s, started_at = _FIRST_PAUSE_S, clock()
        while True:
            code = await self._process.wait()
            if clock() - started_at > _LONGEST_PAUSE_S:
                pause_s = _FIRST_PAUSE_S
            logger.warning("%s ended with %s; it starts again in %g s", self.name, code, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            self._process, started_at = await self._start(), clock()
