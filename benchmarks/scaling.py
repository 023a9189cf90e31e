"""How the CPU of a request grows: with its items, with models, with tenants, with what waits in the queue.

    python -m benchmarks.scaling [--quick] [--json benchmarks/results/scaling.json]

A gateway, a worker and a broker are processes of their own; the fake device takes no time, so that only Shoal's own
work is seen. CPU is read from /proc around closed loops at 32 connections, short texts, MessagePack; medians of rounds.
The queue's line is measured on the queue itself (publish, delivery, reply, ack), with so many messages waiting in a
lane beside; a gateway never has that many open.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks import machine, servers
from shoal.bench.generator import send_load
from shoal.bench.plan import Arrivals, Load
from shoal.bench.targets import Target
from shoal.gateway.keys import keyfile

CONNECTIONS = 32
TEXT = "what does a lone short text cost, number"
PROCESSES = ("gateway", "worker", "broker")
IDLE_S = 15.0


@contextlib.contextmanager
def cluster(num_models: int, *gateway_arguments: str) -> Iterator[tuple[str, dict[str, int]]]:
    """A cluster with so many fake models, ready; its URL and process ids."""
    port, broker_port = servers.free_port(), servers.free_port()
    url, queue = f"http://127.0.0.1:{port}", f"nats://127.0.0.1:{broker_port}"
    names = [f"fake:m{number}" for number in range(num_models)]
    quiet = ("--log-level", "error")
    with (
        servers.shoal("broker", "--port", str(broker_port)) as broker,
        servers.shoal("gateway", "--port", str(port), "--queue", queue, *gateway_arguments, *quiet) as gateway,
        servers.shoal("worker", *names, "--runtime", "fake", "--queue", queue, "--worker-port",
                      str(own := servers.free_port()), *quiet) as worker,
    ):  # fmt: skip

        def is_ready() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"http://127.0.0.1:{own}/readyz").status_code == 200
            return False

        servers.wait_until(is_ready, 600, f"{num_models} models are loaded", worker)
        servers.wait_until_ready(url, gateway)
        yield url, {"gateway": gateway.pid, "worker": worker.pid, "broker": broker.pid}


def cost(load: Load, pids: dict[str, int], rounds: int) -> dict[str, float]:
    """Microseconds of CPU a request in each process, and requests a second."""
    columns: dict[str, list[float]] = {name: [] for name in (*PROCESSES, "requests_per_s")}
    send_load(load)
    for _ in range(rounds):
        before = {name: machine.process_cpu_s(pid) for name, pid in pids.items()}
        measured = send_load(load)
        if measured.num_failed:
            raise RuntimeError(f"requests failed: {measured.errors}")
        columns["requests_per_s"].append(measured.requests_per_s)
        for name, pid in pids.items():
            columns[name].append((machine.process_cpu_s(pid) - before[name]) / measured.num_ok * 1e6)
    return {name: round(statistics.median(values), 1) for name, values in columns.items()}


def load(url: str, seconds: float, items: int = 1, **fields: Any) -> Load:
    requests = [[f"{TEXT} {number} {item}" for item in range(items)] for number in range(max(64, 2048 // items))]
    arrivals = Arrivals("closed", concurrency=CONNECTIONS if items < 64 else 8)
    return Load(Target("shoal", "shoal", url, "m0"), arrivals, requests, seconds, **fields)


def by_items(sizes: list[int], seconds: float, rounds: int) -> Iterator[dict[str, Any]]:
    """Texts a request."""
    with cluster(1) as (url, pids):
        for items in sizes:
            yield {"items": items, **cost(load(url, seconds, items), pids, rounds)}


def by_models(sizes: list[int], seconds: float, rounds: int) -> Iterator[dict[str, Any]]:
    """Models of one worker, all ready, three consumers each; requests go to all of them in turn."""
    for num_models in sizes:
        try:
            yield _with_models(num_models, seconds, rounds)
        except RuntimeError as error:  # told in the row, so that a size that does not come up costs no other line
            yield {"models": num_models, "error": str(error)}


def _with_models(num_models: int, seconds: float, rounds: int) -> dict[str, Any]:
    start = time.perf_counter()
    with cluster(num_models) as (url, pids):
        ready_s = time.perf_counter() - start
        before = {name: machine.process_cpu_s(pid) for name, pid in pids.items()}
        time.sleep(IDLE_S)
        idle = {f"idle_{name}_percent": round(100 * (machine.process_cpu_s(pid) - before[name]) / IDLE_S, 2)
                for name, pid in pids.items()}  # fmt: skip
        given = load(url, seconds)
        models = [f"m{number % num_models}" for number in range(len(given.requests))]
        return {
            "models": num_models,
            **cost(load(url, seconds, models=models), pids, rounds),
            **idle,
            "ready_s": round(ready_s, 1),
        }


def by_tenants(sizes: list[int], seconds: float, rounds: int) -> Iterator[dict[str, Any]]:
    """Tenants with a key each; requests come from all of them in turn."""
    for num_tenants in sizes:
        with tempfile.TemporaryDirectory() as directory:
            path, keys = Path(directory) / "keys.jsonl", []
            for number in range(num_tenants):
                key, key_id = keyfile.new_key()
                keys.append(key)
                keyfile.add(path, keyfile.Key(
                    key_id, keyfile.digest_of(key.encode()), tenant=f"tenant-{number}", created_at=int(time.time()),
                    scopes=("operations", "models"), models=("*",)))  # fmt: skip
            with cluster(1, "--keys-file", str(path)) as (url, pids):
                given = load(url, seconds)
                api_keys = [keys[number % num_tenants] for number in range(len(given.requests))]
                yield {"tenants": num_tenants, **cost(load(url, seconds, api_keys=api_keys), pids, rounds)}


def by_depth(sizes: list[int], rounds: int) -> Iterator[dict[str, Any]]:
    """Messages that wait at the broker."""
    for depth in sizes:
        columns: dict[str, list[float]] = {}
        for _ in range(rounds):
            command = [
                sys.executable,
                "-m",
                "benchmarks.queue_cost",
                "--json",
                "--rounds",
                "5000",
                "--depth",
                str(depth),
            ]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            for wiring, figures in json.loads(done.stdout).items():
                for name, value in figures.items():
                    columns.setdefault(f"{wiring}_{name}", []).append(value)
        yield {"depth": depth, **{name: round(statistics.median(values), 1) for name, values in columns.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, one short round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rounds, seconds = (1, 1.0) if options.quick else (options.rounds, options.seconds)
    print("about 2 minutes" if options.quick else "about 10 minutes", file=sys.stderr, flush=True)
    largest = -2 if options.quick else None
    lines = {
        "items": by_items([1, 4, 16, 64, 256][:largest], seconds, rounds),
        "models": by_models([1, 10, 100, 1000][:largest], seconds, rounds),
        "tenants": by_tenants([1, 10, 100, 1000][:largest], seconds, rounds),
        "depth": by_depth([0, 1000, 10_000, 100_000][:largest], rounds),
    }
    result: dict[str, Any] = {"machine": machine.describe()}
    for name, rows in lines.items():
        result[name] = []
        for row in rows:
            result[name].append(row)
            print(json.dumps(row), flush=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
