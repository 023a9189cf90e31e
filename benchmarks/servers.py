"""Starts `shoal` commands as real processes for a measurement, and stops them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import httpx


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def process(command: Sequence[str], **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command until the block ends. It never goes to a model hub."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"} | variables
    started = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def shoal(*arguments: str) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """Run `shoal ARGUMENTS` until the block ends."""
    return process([sys.executable, "-m", "shoal.cli.main", *arguments])


def wait_until(
    is_so: Callable[[], bool], limit_s: float, what: str, process: subprocess.Popen[bytes] | None = None
) -> float:
    """Seconds until something is so.

    Raises:
        RuntimeError: the process ended or the limit passed.
    """
    start = time.perf_counter()
    while time.perf_counter() - start < limit_s:
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"waiting that {what}: the process ended with {process.returncode}")
        if is_so():
            return time.perf_counter() - start
        time.sleep(0.02)
    raise RuntimeError(f"it did not become so within {limit_s} s that {what}")


def wait_until_ready(url: str, process: subprocess.Popen[bytes], limit_s: float = 60.0) -> float:
    """Seconds until /readyz says 200.

    Raises:
        RuntimeError: the process ended or the limit passed.
    """

    def is_ready() -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{url}/readyz").status_code == 200
        return False

    return wait_until(is_ready, limit_s, f"{url} is ready", process)
