"""Starts `shoal` commands as real processes for a measurement, and stops them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def shoal(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `shoal ARGUMENTS` until the block ends; its output is hidden unless it fails."""
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal.cli.main", *arguments], env=os.environ | {"HF_HUB_OFFLINE": "1"}
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_ready(url: str, process: subprocess.Popen[bytes], limit_s: float = 60.0) -> float:
    """Seconds until /readyz says 200.

    Raises:
        RuntimeError: the process ended or the limit passed.
    """
    start = time.perf_counter()
    while time.perf_counter() - start < limit_s:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/readyz").status_code == 200:
                return time.perf_counter() - start
        time.sleep(0.02)
    raise RuntimeError(f"the server was not ready within {limit_s} s")
