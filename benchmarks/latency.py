"""What a request costs beside the forward pass: lone requests, the gateway's CPU, start-up and idling.

    python -m benchmarks.latency [--json benchmarks/results/latency.json]

A lone short text is sent over HTTP again and again, one at a time, to `shoal serve` (queue in memory) and to a gateway,
a worker and a broker (NATS). Forward is the time on the device as the reply's Server-Timing states it, so overhead is
p50 of the whole minus p50 of that. The CPU that a request costs each process of the cluster is read from /proc while 32
connections send single texts; there the fake device stands in for the model, which would share the cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import machine, servers

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
TEXT = "what does a lone short text cost"


@contextlib.contextmanager
def alone() -> Iterator[dict[str, Any]]:
    """`shoal serve`: everything but the device in one process."""
    port = servers.free_port()
    url = f"http://127.0.0.1:{port}"
    with servers.shoal("serve", MODEL, "--port", str(port)) as process:
        ready_s = servers.wait_until_ready(url, process)
        yield {"url": url, "ready_s": ready_s, "gateway": process.pid}


@contextlib.contextmanager
def cluster(*worker_arguments: str) -> Iterator[dict[str, Any]]:
    """Broker, worker and gateway as processes of their own."""
    port, broker_port = servers.free_port(), servers.free_port()
    url, queue = f"http://127.0.0.1:{port}", f"nats://127.0.0.1:{broker_port}"
    with (
        servers.shoal("broker", "--port", str(broker_port)) as broker,
        servers.shoal("worker", *worker_arguments, "--queue", queue) as worker,
        servers.shoal("gateway", "--port", str(port), "--queue", queue) as process,
    ):
        servers.wait_until_ready(url, process)
        yield {"url": url, "gateway": process.pid, "worker": worker.pid, "broker": broker.pid}


def lone(url: str, num_requests: int) -> dict[str, float]:
    """Medians in milliseconds of requests sent one at a time."""
    total, forward = [], []
    body = json.dumps({"model": MODEL, "input": TEXT, "encoding_format": "base64"})
    # The standard library's client: httpx would add about half a millisecond of its own.
    with contextlib.closing(http.client.HTTPConnection(url.removeprefix("http://"))) as client:
        for i in range(num_requests + 50):
            start = time.perf_counter()
            client.request("POST", "/v1/embeddings", body, {"content-type": "application/json"})
            reply = client.getresponse()
            reply.read()
            elapsed = time.perf_counter() - start
            if reply.status != 200:
                raise RuntimeError(f"{reply.status} {reply.reason}")
            if i >= 50:
                total.append(elapsed * 1e3)
                stages = dict(re.findall(r"(\w+);dur=([\d.]+)", reply.headers["server-timing"]))
                forward.append(float(stages["inference"]))
    p50, p50_forward = statistics.median(total), statistics.median(forward)
    return {"p50_ms": round(p50, 3), "forward_ms": round(p50_forward, 3), "overhead_ms": round(p50 - p50_forward, 3)}


async def load(url: str, model: str, num_requests: int, num_connections: int) -> float:
    """Requests per second of so many keep-alive connections, by a bare client that costs the machine little."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps({"model": model, "input": TEXT, "encoding_format": "base64"}).encode()
    lines = (
        "POST /v1/embeddings HTTP/1.1",
        f"host: {host}",
        "content-type: application/json",
        f"content-length: {len(body)}",
    )
    message = "\r\n".join([*lines, "", ""]).encode() + body

    async def connection() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in range(num_requests // num_connections):
            writer.write(message)
            header = await reader.readuntil(b"\r\n\r\n")
            if not header.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(header.decode())
            found = re.search(rb"content-length: (\d+)", header, re.IGNORECASE)
            if found is None:
                raise RuntimeError(header.decode())
            await reader.readexactly(int(found[1]))
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(connection() for _ in range(num_connections)))
    return num_requests / (time.perf_counter() - start)


def cpu_per_request(started: dict[str, Any], num_requests: int, rounds: int = 5) -> dict[str, float]:
    """Requests per second at 32 connections, and microseconds of CPU a request in each process: medians of rounds."""
    names = ("gateway", "worker", "broker")
    columns: dict[str, list[float]] = {"requests_per_s": [], **{name: [] for name in names}}
    for _ in range(rounds):
        before_s = {name: machine.process_cpu_s(started[name]) for name in names}
        columns["requests_per_s"].append(asyncio.run(load(started["url"], "device", num_requests // rounds, 32)))
        for name in names:
            cpu_s = machine.process_cpu_s(started[name]) - before_s[name]
            columns[name].append(cpu_s / (num_requests // rounds) * 1e6)
    return {
        "requests_per_s" if name == "requests_per_s" else f"{name}_cpu_us_per_request": round(statistics.median(values))
        for name, values in columns.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": machine.describe(), "model": MODEL, "text": TEXT}
    with alone() as started:
        result["memory"] = lone(started["url"], options.requests)
        result["ready_s"] = round(started["ready_s"], 2)
        before, start = machine.process_cpu_s(started["gateway"]), time.perf_counter()
        time.sleep(10)
        result["idle_cpu_percent"] = round(
            100 * (machine.process_cpu_s(started["gateway"]) - before) / (time.perf_counter() - start), 2
        )
        result["memory"]["requests_per_s_at_32"] = round(
            asyncio.run(load(started["url"], MODEL, 10 * options.requests, 32))
        )
    with cluster(MODEL) as started:
        result["nats"] = lone(started["url"], options.requests)
        result["nats"]["requests_per_s_at_32"] = round(
            asyncio.run(load(started["url"], MODEL, 10 * options.requests, 32))
        )
    with cluster("fake:device", "--runtime", "fake") as started:
        result["nats_with_fake_device"] = cpu_per_request(started, 20 * options.requests)
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
