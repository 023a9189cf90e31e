"""Many models in little memory: Zipf traffic at a fixed rate over 60 models in a budget that holds eight.

    python -m benchmarks.residency [--runtime fake|openvino] [--seconds 60] [--rate 40] [--json FILE]

Gateway, worker and runtime host are real; requests arrive at random times whatever becomes of those before them. A hit
is a request whose model was ready when it came. Each answer is held to the first one for the same model and text.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import collections
import importlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np

from benchmarks import machine
from shoal.catalog import fake_spec, resolve
from shoal.catalog.spec import ModelSpec
from shoal.gateway import Gateway
from shoal.gateway.server import Server
from shoal.queue.memory import MemoryQueue
from shoal.runtimes.footprint import footprint
from shoal.settings import GatewaySettings, QueueSettings, WorkerSettings
from shoal.worker import Worker

TEXTS = ("a short text", "another one, of a few words more", "the third of three")
DRIFT = 1e-4
"""Two answers may differ by this: a batch's company changes the last bits of a real model's vectors."""


class Traffic:
    """What was sent and what came back.

    Attributes:
        num_sent, num_hits: requests, and those whose model was ready.
        codes: outcomes: ok, wrong, or an error's code.
        seconds: of each request answered.
    """

    def __init__(self, models: Sequence[str], worker: Worker, http: httpx.AsyncClient, seed: int) -> None:
        self.num_sent = self.num_hits = 0
        self.codes: collections.Counter[str] = collections.Counter()
        self.seconds: list[float] = []
        self._models = models
        self._worker = worker
        self._http = http
        self._random = random.Random(seed)  # noqa: S311
        self._firsts: dict[tuple[str, str], Any] = {}

    async def run(self, rate: float, seconds: float, exponent: float = 1.0) -> None:
        """Send so many requests a second, so long, to models whose popularity falls with rank ** exponent; wait."""
        weights = [1 / rank**exponent for rank in range(1, len(self._models) + 1)]
        asked: list[asyncio.Task[None]] = []
        due, ends_at = time.monotonic(), time.monotonic() + seconds
        while due < ends_at:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            (model,) = self._random.choices(self._models, weights)
            asked.append(asyncio.create_task(self._ask(model, self._random.choice(TEXTS))))
            due += self._random.expovariate(rate)
        await asyncio.gather(*asked)

    @property
    def report(self) -> dict[str, Any]:
        residency = self._worker.residency
        return {
            "sent": self.num_sent,
            "answered": self.codes["ok"],
            "others": {code: count for code, count in self.codes.items() if code != "ok"},
            "hit_ratio": round(self.num_hits / self.num_sent, 3),
            "evictions": int(self._worker.measures.evictions.value),
            "p50_ms": round(1e3 * statistics.median(self.seconds), 1),
            "p99_ms": round(1e3 * statistics.quantiles(self.seconds, n=100)[-1], 1),
            "used_bytes": residency.room.used_bytes,
            "budget_bytes": residency.room.budget_bytes,
        }

    async def _ask(self, model: str, text: str) -> None:
        self.num_sent += 1
        self.num_hits += model in self._worker.residency.ready_ids
        started = time.monotonic()
        body = {"model": model, "input": text, "encoding_format": "base64"}
        reply = await self._http.post("/v1/embeddings", json=body)
        if reply.status_code != 200:
            self.codes[str(reply.json()["error"]["code"])] += 1
            return
        self.seconds.append(time.monotonic() - started)
        vector = np.frombuffer(base64.b64decode(reply.json()["data"][0]["embedding"]), "<f4")
        first = self._firsts.setdefault((model, text), vector)
        self.codes["ok" if first.shape == vector.shape and np.abs(first - vector).max() < DRIFT else "wrong"] += 1


async def measure(
    specs: Sequence[ModelSpec], settings: WorkerSettings, *, rate: float, seconds: float, seed: int = 0
) -> dict[str, Any]:
    """Serve the models, send the traffic, stop; returns the report."""
    queue, queue_settings = MemoryQueue(), QueueSettings()
    gateway_settings = GatewaySettings(port=0, graceful_s=1.0)
    gateway = Gateway(queue, gateway_settings, queue_settings)
    server = Server(gateway.app, gateway_settings)
    worker = Worker(queue, specs, settings, queue_settings, preload=[spec.id for spec in specs])
    await gateway.start()
    port = await server.start()
    await worker.start()
    try:
        await worker.wait_ready()
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120, limits=limits) as http:
            traffic = Traffic([spec.id for spec in specs], worker, http, seed)
            await traffic.run(rate, seconds)
        return traffic.report
    finally:
        await server.stop(1.0)
        await gateway.stop()
        await worker.drain()
        await queue.close()


def fake_models(count: int) -> list[ModelSpec]:
    """Models whose vectors differ in length, so that an answer of another model is found out."""
    return [fake_spec(f"fake:{number}", dimensions=8 + number) for number in range(count)]


def copies(directories: Sequence[Path], count: int) -> list[ModelSpec]:
    """Real models under so many names, in turns."""
    specs = [resolve(str(directory)) for directory in directories]
    return [
        msgspec.structs.replace(specs[number % len(specs)], id=f"model-{number}", aliases=()) for number in range(count)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtime", choices=("fake", "openvino"), default="fake")
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--resident", type=int, default=8, help="models that the budget holds")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=40.0, help="requests a second")
    parser.add_argument("--load-s", type=float, default=0.2, help="seconds that loading a fake model takes")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.runtime == "fake":
            specs = fake_models(arguments.models)
            options = json.dumps({"bytes": 2**20, "load_s": arguments.load_s, "a_s": 0.002})
            settings = WorkerSettings(
                runtime="fake", runtime_options=options, memory_budget=str(arguments.resident * 2**20)
            )
        else:
            specs = copies(_tiny_models(Path(scratch)), arguments.models)
            settings = WorkerSettings(memory_budget=str(int((arguments.resident + 0.5) * _bytes_of(specs[0]))))
        report = asyncio.run(measure(specs, settings, rate=arguments.rate, seconds=arguments.seconds))
    print(json.dumps(report, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine.describe(), **report}, indent=2) + "\n")


def _tiny_models(scratch: Path) -> list[Path]:
    """Three real models of random weights and one size."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    tiny: Any = importlib.import_module("tiny_models")
    return [tiny.save_tiny_model(scratch / f"seed{seed}", tiny.TinyModel("bert", seed=seed)) for seed in range(3)]


def _bytes_of(spec: ModelSpec) -> int:
    """What a model takes, weights and activations, in float32."""
    estimate = footprint(spec, 4)
    return estimate.weights_bytes + estimate.activation_bytes


if __name__ == "__main__":
    main()
