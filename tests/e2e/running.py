"""Runs the `shoal` command as users do: a real process, real sockets, stopped by a signal."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


class Running:
    """A `shoal` process and what it wrote to stderr so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self.lines.append("")
            self._changed.notify_all()

    def wait_for_line(self, pattern: str, limit_s: float = 60.0) -> re.Match[str]:
        """The first stderr line that matches, past or future."""
        end, seen = time.monotonic() + limit_s, 0
        with self._changed:
            while True:
                for line in self.lines[seen:]:
                    if match := re.search(pattern, line):
                        return match
                seen = len(self.lines)
                if self.lines and self.lines[-1] == "" and self.process.poll() is not None:
                    raise AssertionError(f"ended with {self.process.returncode}:\n{self.output}")
                if not self._changed.wait(end - time.monotonic()):
                    raise AssertionError(f"no line matched {pattern!r} in {limit_s} s:\n{self.output}")

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def stop(self, number: signal.Signals = signal.SIGTERM, limit_s: float = 30.0) -> int:
        """Send the signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(limit_s)


@contextlib.contextmanager
def running(*arguments: str, is_own_group: bool = False, **variables: str) -> Iterator[Running]:
    """`shoal ARGUMENTS` with SHOAL_* and other variables added, killed at the end if it still lives."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal.cli.main", *arguments],
        env=environment | {"HF_HUB_OFFLINE": "1"} | variables,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=is_own_group,
    )
    server = Running(process)
    try:
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert process.stderr is not None
        server._reader.join(10)
        process.stderr.close()


@contextlib.contextmanager
def serving(*arguments: str, **variables: str) -> Iterator[tuple[Running, str]]:
    """`shoal serve ARGUMENTS` on a free port, ready; yields the process and its base URL.

    What the event loop had to report (an exception that nobody caught, so that work may hang) is a failure.
    """
    with running("serve", "--port", "0", *arguments, **variables) as server:
        url = server.wait_for_line(r"listens on (http://\S+)")[1]
        server.wait_for_line(r"Ready after")
        yield server, url
    assert "Exception in callback" not in server.output, server.output


def children_of(pid: int) -> list[int]:
    """Process ids of all descendants."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children_of(int(child))]
    return found


def name_of(pid: int) -> str:
    """What a process runs."""
    return Path(f"/proc/{pid}/comm").read_text().strip()


def runtime_hosts(pid: int) -> list[int]:
    """Process ids of the runtime hosts below a process."""
    return [
        child for child in children_of(pid) if b"shoal.runtimes.host" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def assert_alive(url: str, model: str) -> None:
    """A plain request still answers 200."""
    reply = httpx.post(f"{url}/v1/embeddings", json={"model": model, "input": "still there?"}, timeout=20)
    assert reply.status_code == 200, reply.text
