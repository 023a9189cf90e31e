"""What is compared: Shoal's cluster, and routers in front of `shoal serve` processes, all on the same fake device."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import msgspec

from benchmarks import environments, servers

__all__ = ["ROUTERS", "Device", "System", "Tally", "cpu_s", "routed", "shoal_cluster", "workers"]

SGLANG, VLLM = "sglang-router==0.3.2", "vllm-router==0.1.17"
ROUTERS = {
    **{f"sglang-router {policy}": policy for policy in ("cache_aware", "power_of_two", "round_robin", "random")},
    **{
        f"vllm-router {policy}": policy
        for policy in ("cache_aware", "power_of_two", "round_robin", "random", "consistent_hash", "sticky_least_loaded")
    },
    **{f"plain {policy}": policy for policy in ("round_robin", "shortest_polled", "bounded_hash")},
}
"""Name to policy. The first two are the routers as shipped, their other settings at their defaults."""


class Device(msgspec.Struct, frozen=True):
    """The fake device of each worker, and what it aims at."""

    a_s: float
    c_s: float
    objective_s: float
    num_models: int

    @property
    def models(self) -> list[str]:
        return [f"m{number}" for number in range(self.num_models)]

    @property
    def arguments(self) -> list[str]:
        """Of `shoal serve` and `shoal worker`."""
        knobs = json.dumps({"a_s": self.a_s, "c_s": self.c_s})
        return [
            *(f"fake:{model}" for model in self.models),
            *("--runtime", "fake", "--runtime-options", knobs),
            *("--latency-objective-ms", str(self.objective_s * 1000), "--log-level", "error"),
        ]


class Tally(msgspec.Struct, frozen=True):
    """What a system's devices have done so far."""

    busy_s: float
    batches: float
    fill: float


class System(msgspec.Struct, frozen=True):
    """Something that takes requests: where, and where its workers tell what they did."""

    name: str
    url: str
    metrics: list[str]

    def tally(self) -> Tally:
        """Sums over all workers."""
        pages = [httpx.get(f"{url}/metrics").text for url in self.metrics]

        def total(name: str) -> float:
            return sum(float(value) for page in pages for value in re.findall(rf"^{name}{{.*}} (\S+)$", page, re.M))

        return Tally(
            total("shoal_batch_seconds_sum"), total("shoal_batch_seconds_count"), total("shoal_batch_fill_sum")
        )


@contextlib.contextmanager
def workers(device: Device, num_workers: int) -> Iterator[list[str]]:
    """`shoal serve` processes; their URLs."""
    with contextlib.ExitStack() as stack:
        ports = [servers.free_port() for _ in range(num_workers)]
        started = [
            stack.enter_context(servers.shoal("serve", *device.arguments, "--port", str(port))) for port in ports
        ]
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        for url, process in zip(urls, started, strict=True):
            servers.wait_until_ready(url, process, 180)
            wait_for_models(url, device)
        yield urls


@contextlib.contextmanager
def shoal_cluster(device: Device, num_workers: int) -> Iterator[System]:
    """Broker, workers and gateway."""
    with contextlib.ExitStack() as stack:
        broker_port, port = servers.free_port(), servers.free_port()
        queue = f"nats://127.0.0.1:{broker_port}"
        stack.enter_context(servers.shoal("broker", "--port", str(broker_port)))
        metrics = []
        for _ in range(num_workers):
            metrics.append(f"http://127.0.0.1:{(own := servers.free_port())}")
            stack.enter_context(servers.shoal("worker", *device.arguments, "--queue", queue, "--worker-port", str(own)))
        gateway = stack.enter_context(servers.shoal("gateway", "--port", str(port), "--queue", queue))
        url = f"http://127.0.0.1:{port}"
        servers.wait_until_ready(url, gateway, 180)
        wait_for_models(url, device, num_workers)
        yield System("shoal", url, metrics)


def wait_for_models(url: str, device: Device, num_workers: int = 1) -> None:
    """Return when each model is ready on so many workers."""

    def is_ready() -> bool:
        entries = httpx.get(f"{url}/v1/models").json()["data"]
        return len(entries) == device.num_models and all(len(entry["loaded"]) == num_workers for entry in entries)

    servers.wait_until(is_ready, 180, f"{url} has all models on {num_workers} workers")


@contextlib.contextmanager
def routed(name: str, urls: Sequence[str], root: Path) -> Iterator[System]:
    """A router in front of workers."""
    port, metrics_port = servers.free_port(), servers.free_port()
    with servers.process(_command(name, port, metrics_port, urls, root)) as process:
        url = f"http://127.0.0.1:{port}"
        body = {"model": "m0", "input": ["hello"]}

        def is_up() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return httpx.post(f"{url}/v1/embeddings", json=body).status_code == 200
            return False

        servers.wait_until(is_up, 60, f"{name} answers", process)
        yield System(name, url, list(urls))


def _command(name: str, port: int, metrics_port: int, urls: Sequence[str], root: Path) -> list[str]:
    kind, policy = name.split()
    if kind == "plain":
        return [sys.executable, "-m", "benchmarks.dispatch.router", policy, str(port), *urls]
    requirements = ("setproctitle", "aiohttp", "orjson", "uvicorn", "fastapi", "requests")
    made = environments.environment("routers", [("--no-deps", SGLANG, VLLM), requirements], root)
    module = {"sglang-router": "sglang_router.launch_router", "vllm-router": "vllm_router.launch_router"}[kind]
    where = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics_port)]
    return [str(made / "bin" / "python"), "-m", module, *where, "--policy", policy, "--worker-urls", *urls]


def cpu_s() -> float:
    """Seconds of CPU that the machine has used so far, all cores; not what ran at a low priority, which yields."""
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    fields = dict(zip(names, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:], strict=False))
    return sum(int(ticks) for name, ticks in fields.items() if name not in ("nice", "idle", "iowait")) / 100
