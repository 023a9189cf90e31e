"""The sidecar's end of a runtime host: starts the child process, sends it orders, resolves futures with its reports.

Knows processes, sockets and frames; which model to run when, and what to do about a crash, is the sidecar's affair.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Iterable
from typing import Any, cast

from shoal.catalog.spec import ModelSpec
from shoal.errors import ShoalError
from shoal.runtimes.base import Arrays, Features, Footprint, RuntimeOptions, SessionFacts
from shoal.runtimes.wire import (
    SOCKET_BUFFER_BYTES,
    Estimate,
    Estimated,
    Failed,
    FrameReader,
    Load,
    Loaded,
    Ran,
    Run,
    Unload,
    Unloaded,
    arrays_of,
    decode_report,
    pack,
    unpack,
)

__all__ = ["HostExited", "HostLink"]

logger = logging.getLogger("shoal.host")

FIRST_BACK_OFF_S = 0.1
MAX_BACK_OFF_S = 10.0
STOP_S = 5.0


class HostExited(ConnectionError):
    """The runtime host died, or was not running: its batches are lost, its sessions gone."""


class HostLink:
    """One runtime host and the connection to it.

    Every order returns a future. It fails with `HostExited` if the host dies first, with `MemoryError` if the device
    had too little memory, else with the `ShoalError` that the host reported.

    Attributes:
        name: stands in front of each line that the host prints.
        on_exit: called when the host dies unasked, after the futures have failed.
        device_tokens: that batches had so far, padding included.
    """

    def __init__(self, name: str, on_exit: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.on_exit = on_exit
        self._process: Process | None = None
        self._connection: _Connection | None = None
        self._output: asyncio.Task[None] | None = None
        self._next_id = 0
        self._back_off_s = 0.0
        self.device_tokens = 0

    @property
    def is_running(self) -> bool:
        return self._connection is not None and self._connection.is_open

    @property
    def pid(self) -> int | None:
        """Process id of the host, None before the first start."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start the host; returns when orders may be sent (it need not have finished its imports)."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        try:
            await self._start_with(ours, theirs)
        except BaseException:  # cancelled, too: the host reads the end of the stream and leaves
            ours.close()
            raise
        finally:
            theirs.close()

    async def _start_with(self, ours: socket.socket, theirs: socket.socket) -> None:
        command = [sys.executable, "-m", "shoal.runtimes.host"]
        command += ["--socket", str(theirs.fileno()), "--parent", str(os.getpid())]
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C is for us, from the host's first moment on: what it runs is finished first
        )
        self._output = asyncio.create_task(self._log_output(self._process.stdout))
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        _, self._connection = await loop.create_unix_connection(
            lambda: _Connection(self.on_exit, self._count), sock=ours
        )

    async def restart(self) -> None:
        """Start again after a death: at once if the last host ran a batch, else after pauses that double up to 10 s."""
        if self._connection is not None and self._connection.has_run:
            self._back_off_s = 0.0
        await asyncio.sleep(self._back_off_s)
        self._back_off_s = min(max(FIRST_BACK_OFF_S, 2 * self._back_off_s), MAX_BACK_OFF_S)
        await self.stop()
        await self.start()

    def kill(self) -> None:
        """End a host that hangs, as if it had crashed."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def stop(self) -> None:
        """Close the connection and wait for the host to leave; kill it if it does not within 5 s."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None and self._output is not None:
            try:
                await asyncio.wait_for(self._process.wait(), STOP_S)
            except TimeoutError:
                logger.warning("%s does not leave, killing it", self.name)
                self.kill()
                await self._process.wait()
            await self._output

    def estimate(self, spec: ModelSpec, runtime: str, options: RuntimeOptions) -> asyncio.Future[Footprint]:
        """What memory a model would take."""
        return self._order(Estimate(self._take_id(), runtime, spec, options))

    def load(
        self, session: str, spec: ModelSpec, runtime: str, options: RuntimeOptions
    ) -> asyncio.Future[SessionFacts]:
        """Load a model under a name. Other sessions keep running meanwhile."""
        return self._order(Load(self._take_id(), session, runtime, spec, options))

    def run(self, session: str, features: Features) -> asyncio.Future[tuple[Arrays, float]]:
        """Run a batch: outputs as views of the received bytes, and the seconds it took on the device."""
        fields = {name: getattr(features, name) for name in features.__struct_fields__}
        arrays: Arrays = {name: array for name, array in fields.items() if array is not None}
        return self._order(Run(self._take_id(), session), arrays)

    def unload(self, session: str) -> asyncio.Future[None]:
        """Free a session."""
        return self._order(Unload(self._take_id(), session))

    def _count(self, device_tokens: int) -> None:
        self.device_tokens += device_tokens

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _order(self, order: Estimate | Load | Run | Unload, arrays: Arrays | None = None) -> asyncio.Future[Any]:
        if self._connection is None or not self._connection.is_open:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_exception(HostExited(f"runtime host {self.name} is not running"))
            return future
        return self._connection.order(order.id, pack(order, arrays))

    async def _log_output(self, output: asyncio.StreamReader | None) -> None:
        while output and (text := await output.read(64 * 1024)):
            for line in text.decode(errors="replace").splitlines():
                logger.warning("%s: %s", self.name, line)


class _Connection(asyncio.BufferedProtocol):
    """One life of the host: orders that wait for a report, by id."""

    def __init__(self, on_exit: Callable[[], None], on_run: Callable[[int], None]) -> None:
        self.is_open = False
        self.has_run = False
        self._on_exit = on_exit
        self._on_run = on_run
        self._is_closing = False
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def order(self, order_id: int, frame: bytes) -> asyncio.Future[Any]:
        future = self._waiting[order_id] = self._loop.create_future()
        self._transport.write(frame)
        return future

    def close(self) -> None:
        self._is_closing = True
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer

    def buffer_updated(self, nbytes: int) -> None:
        for frame in self._reader.received(nbytes):
            self._settle(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._fail(self._waiting.values())
        self._waiting.clear()
        if not self._is_closing:
            self._on_exit()

    def _fail(self, futures: Iterable[asyncio.Future[Any]]) -> None:
        for future in futures:
            if not future.done():
                future.set_exception(HostExited("the runtime host died"))

    def _settle(self, frame: memoryview) -> None:
        header, body = unpack(frame)
        report = decode_report(header)
        future = self._waiting.pop(report.id)
        if future.done():  # cancelled by who asked
            return
        match report:
            case Ran():
                self.has_run = True
                self._on_run(report.device_tokens)
                future.set_result((arrays_of(report.arrays, body), report.seconds))
            case Estimated():
                future.set_result(report.footprint)
            case Loaded():
                future.set_result(report.facts)
            case Unloaded():
                future.set_result(None)
            case Failed():
                future.set_exception(_exception(report))


def _exception(report: Failed) -> Exception:
    return MemoryError(report.error.message) if report.is_out_of_memory else ShoalError.from_body(report.error)
