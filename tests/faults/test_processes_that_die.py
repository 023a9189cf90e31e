"""Processes that are killed, stopped or told to leave, under load: nothing is lost, and all is well afterwards.

Real processes, signals and a real broker. The device is the fake one: its vectors tell every mix-up.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from e2e.running import Running, assert_alive, children_of, name_of, running, runtime_hosts, serving

NUM_TEXTS, NUM_ROUNDS = 100, 4
DEVICE = json.dumps({"a_s": 0.002, "c_s": 0.0001})
FAKE = ("fake:tiny", "--runtime", "fake", "--runtime-options", DEVICE, "--lease-s", "3")
WIRINGS = pytest.mark.parametrize("arguments", [(), ("--workers", "2")], ids=["memory", "nats"])


def command_of(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().replace(b"\0", b" ").decode()


def workers(server: Running) -> list[int]:
    return [pid for pid in children_of(server.process.pid) if "cli.main worker" in command_of(pid)]


def broker(server: Running) -> int:
    (found,) = [pid for pid in children_of(server.process.pid) if name_of(pid) == "nats-server"]
    return found


def load(url: str, at: dict[int, Callable[[], None]]) -> npt.NDArray[np.float32]:
    """400 requests of 100 texts from 16 callers; request number i first does `at[i]`. All must be answered with 200."""
    with httpx.Client(timeout=60) as client, ThreadPoolExecutor(16) as pool:

        def ask(i: int) -> list[float]:
            if i in at:
                at[i]()
            body = {"model": "tiny", "input": f"text {i % NUM_TEXTS}"}
            reply = client.post(f"{url}/v1/embeddings", json=body)
            assert reply.status_code == 200, reply.text
            vector: list[float] = reply.json()["data"][0]["embedding"]
            return vector

        vectors = list(pool.map(ask, range(NUM_TEXTS * NUM_ROUNDS)))
    return np.array(vectors, np.float32).reshape(NUM_ROUNDS, NUM_TEXTS, -1)


def assert_right(vectors: npt.NDArray[np.float32]) -> None:
    """Each text has always its own vector."""
    assert (vectors == vectors[0]).all()
    assert len(np.unique(vectors[0], axis=0)) == NUM_TEXTS


@WIRINGS
def test_runtime_host_killed(arguments: tuple[str, ...]) -> None:
    with serving(*FAKE, *arguments) as (server, url):

        def kill() -> None:
            os.kill(runtime_hosts(server.process.pid)[0], signal.SIGKILL)

        assert_right(load(url, {60: kill, 200: kill}))
        assert_alive(url, "tiny")


def test_worker_killed() -> None:
    with serving(*FAKE, "--workers", "2") as (server, url):
        assert_right(load(url, {100: lambda: os.kill(workers(server)[0], signal.SIGKILL)}))
        server.wait_for_line(r"worker \d ended with -9")
        assert_alive(url, "tiny")


def test_worker_stopped_for_five_seconds() -> None:
    """Its leases run out, others do its work; what it says when it wakes is dropped."""
    with serving(*FAKE, "--workers", "2") as (server, url):
        woken = threading.Event()

        def freeze() -> None:
            victim = workers(server)[0]
            os.kill(victim, signal.SIGSTOP)

            def wake() -> None:
                os.kill(victim, signal.SIGCONT)
                woken.set()

            threading.Timer(5, wake).start()

        assert_right(load(url, {100: freeze}))
        assert woken.wait(30)
        assert_right(load(url, {}))
        assert_alive(url, "tiny")


def test_broker_killed_twice() -> None:
    """It comes back on its port, and what was in flight is published again."""
    with serving(*FAKE, "--workers", "1") as (server, url):

        def kill() -> None:
            os.kill(broker(server), signal.SIGKILL)

        assert_right(load(url, {100: kill, 300: kill}))
        assert server.output.count("the broker ended with -9") == 2
        assert_alive(url, "tiny")
        assert server.stop() == 0


def test_gateway_of_its_own_reconnects() -> None:
    """Broker, worker and gateway started apart; the broker is stopped and another one takes its port."""
    with running("broker", "--port", "0") as first:
        nats = first.wait_for_line(r"broker listens on (nats://\S+)")[1]
        port = nats.rpartition(":")[2]
        with (
            running("worker", *FAKE, "--queue", nats),
            running("gateway", "--port", "0", "--queue", nats) as gateway,
        ):
            url = gateway.wait_for_line(r"listens on (http://\S+)")[1]
            assert_right(load(url, {}))
            assert first.stop() == 0
            down = httpx.get(f"{url}/readyz")
            assert down.status_code == 503
            assert httpx.get(f"{url}/healthz").status_code == 200
            with ThreadPoolExecutor(1) as pool:
                body = {"model": "tiny", "input": "asked while there was no broker"}
                asked = pool.submit(httpx.post, f"{url}/v1/embeddings", json=body, timeout=60)
                with running("broker", "--port", port) as second:
                    second.wait_for_line("broker listens on")
                    assert asked.result().status_code == 200
                    assert_right(load(url, {}))
                    assert httpx.get(f"{url}/readyz").status_code == 200


def test_worker_told_to_leave_hands_back_its_work() -> None:
    """SIGTERM under load: no new pulls, what runs is finished, the rest goes to the other worker."""
    with serving(*FAKE, "--workers", "2") as (server, url):
        assert_right(load(url, {100: lambda: os.kill(workers(server)[0], signal.SIGTERM)}))
        server.wait_for_line(r"worker \d ended with 0")
        assert_alive(url, "tiny")


@WIRINGS
def test_readiness_is_false_while_no_forward_can_run(arguments: tuple[str, ...]) -> None:
    """While a runtime host starts, /readyz says no and /healthz yes; requests wait and are answered."""
    slow = json.dumps({"load_s": 1.0})
    options = ("fake:tiny", "--runtime", "fake", "--runtime-options", slow)
    number = ("--workers", "1") if arguments else ()
    with serving(*options, *number) as (server, url), httpx.Client(base_url=url, timeout=60) as client:
        assert client.get("/readyz").status_code == 200
        os.kill(runtime_hosts(server.process.pid)[0], signal.SIGKILL)
        while client.get("/readyz").status_code == 200:
            assert client.get("/healthz").status_code == 200
        reply = client.post("/v1/embeddings", json={"model": "tiny", "input": "asked while nothing could run"})
        assert reply.status_code == 200
        while client.get("/readyz").status_code != 200:
            assert client.get("/healthz").status_code == 200


def test_all_of_it_at_once() -> None:
    """The soak, for a short while: see benchmarks/soak.py."""
    from benchmarks.soak import soak

    tally = soak(minutes=0.6, rate=15, seed=1)
    refused = sum(tally.refused.values())
    assert (tally.lost, tally.wrong) == (0, 0), tally.losses
    assert tally.sent == tally.answered + refused + tally.gone
    assert tally.answered > tally.sent / 3
    assert sum(tally.faults.values()) >= 4
