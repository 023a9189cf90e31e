"""Open and closed loops against a server with a fake device of known speed, each sent by a process of its own."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import msgspec

from benchmarks import servers
from shoal.bench.generator import send_load
from shoal.bench.histogram import GROWTH, LEAST_S
from shoal.bench.plan import Arrivals, Load, Measured
from shoal.bench.targets import Target

MODEL = "device"
TOKENS_A_TEXT = 16
DEVICE = {"a_s": 0.005, "c_s": 0.00005}
"""Seconds a batch and seconds a token: at most 20,000 tokens a second, whatever else the machine does."""

NUM_CONNECTIONS = 48
SETTLE_S = 0.5


@contextlib.contextmanager
def serving(wiring: str, *arguments: str) -> Iterator[str]:
    """A server with the fake device, its URL: `memory` is one process, `nats` a broker, a worker and a gateway."""
    port = servers.free_port()
    url = f"http://127.0.0.1:{port}"
    workers = {"memory": "0", "nats": "1"}[wiring]
    device = ("--runtime", "fake", "--runtime-options", json.dumps(DEVICE), "--workers", workers)
    with servers.shoal("serve", f"fake:{MODEL}", "--port", str(port), *device, *arguments) as process:
        servers.wait_until_ready(url, process)
        yield url


def texts(num_texts: int) -> list[str]:
    """The texts of a request."""
    return [f"text {number} ".ljust(4 * TOKENS_A_TEXT, "x") for number in range(num_texts)]


class Caller(msgspec.Struct, frozen=True):
    """Who sends what.

    Attributes:
        key: API key; empty for none.
        num_texts: of each request.
    """

    url: str
    num_texts: int
    key: str = ""

    def load(self, arrivals: Arrivals, duration_s: float, timeout_s: float, seed: int) -> Load:
        """What one generator sends."""
        target = Target("shoal", "openai-base64", self.url, MODEL, self.key)
        return Load(target, arrivals, [texts(self.num_texts)], duration_s, timeout_s, seed)


def send(*loads: Load) -> list[Measured]:
    """Send loads at the same time, and leave the server idle after."""
    with ProcessPoolExecutor(len(loads), multiprocessing.get_context("spawn")) as processes:
        starts_at = time.time() + 2.0  # time to import
        measured = list(processes.map(send_load, loads, [starts_at] * len(loads)))
    time.sleep(SETTLE_S)
    return measured


def capacity(caller: Caller, duration_s: float) -> float:
    """Requests a second that are answered to so many connections that the next batch is always there.

    Raises:
        RuntimeError: some were refused.
    """
    [measured] = send(caller.load(Arrivals("closed", concurrency=NUM_CONNECTIONS), duration_s, 60.0, 0))
    if measured.errors:
        raise RuntimeError(f"at {NUM_CONNECTIONS} connections: {measured.errors}")
    return measured.requests_per_s


def num_in_time(measured: Measured, deadline_s: float) -> int:
    """How many were answered within a time, counted from when they were meant to be sent."""
    return sum(
        count for bucket, count in measured.latency.counts.items() if LEAST_S * GROWTH ** (bucket - 0.5) <= deadline_s
    )


def answered_ms(measured: Measured, percent: float) -> float:
    """A percentile of the latency of those that were answered."""
    answered = msgspec.structs.replace(measured.latency, num_failed=0)
    return answered.percentile_s(percent) * 1e3
