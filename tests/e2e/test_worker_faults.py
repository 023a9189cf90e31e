"""Workers of a cluster that die or stop under load: each request gets its one right answer, from another worker."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from e2e.running import Running, children_of, serving

OPTIONS = '{"a_s": 0.02}'
STOPPED_S = 5.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Running, str]]:
    arguments = ("fake:tiny", "--runtime", "fake", "--workers", "2", "--runtime-options", OPTIONS)
    with serving(*arguments) as started:
        yield started


def workers(pid: int) -> list[int]:
    """Process ids of the worker processes below a server."""
    return [
        child for child in children_of(pid) if b"shoal.cli.main\0worker" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def vectors(url: str, count: int, faults: dict[int, threading.Timer]) -> npt.NDArray[np.float32]:
    """Ask for the same hundred texts again and again, 16 at a time; at some of them, something happens."""
    with httpx.Client(timeout=60) as client, ThreadPoolExecutor(16) as pool:

        def ask(i: int) -> list[float]:
            if i in faults:
                faults[i].start()
            reply = client.post(f"{url}/v1/embeddings", json={"model": "tiny", "input": f"text {i % 100}"})
            assert reply.status_code == 200, reply.text
            vector: list[float] = reply.json()["data"][0]["embedding"]
            return vector

        return np.array(list(pool.map(ask, range(count))), np.float32).reshape(count // 100, 100, -1)


def send(pid: int, number: signal.Signals, after_s: float = 0.0) -> threading.Timer:
    return threading.Timer(after_s, os.kill, (pid, number))


def test_a_worker_that_is_killed_loses_no_request(cluster: tuple[Running, str]) -> None:
    server, url = cluster
    answers = vectors(url, 600, {150: send(workers(server.process.pid)[0], signal.SIGKILL)})
    assert (answers == answers[0]).all()
    assert len(np.unique(answers[0], axis=0)) == 100
    server.wait_for_line(r"worker \d ended with -9")


def test_a_worker_that_stands_still_for_five_seconds_gives_no_second_or_wrong_answer(
    cluster: tuple[Running, str],
) -> None:
    server, url = cluster
    stopped = workers(server.process.pid)[-1]
    wakes = send(stopped, signal.SIGCONT, STOPPED_S)
    answers = vectors(url, 600, {100: send(stopped, signal.SIGSTOP), 101: wakes})
    wakes.join()
    assert (answers == answers[0]).all()
    assert (vectors(url, 200, {}) == answers[0]).all()
    assert stopped in workers(server.process.pid)
