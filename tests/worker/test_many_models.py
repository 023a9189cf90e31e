"""Sixty models in memory for eight, requests at random times: each gets its answer. The long form is a benchmark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import residency
from shoal.runtimes.footprint import footprint
from shoal.settings import WorkerSettings

REFUSALS = {"not_ready", "overloaded", "deadline_exceeded"}


@pytest.mark.parametrize("runtime", ["fake", "openvino"])
async def test_sixty_models_in_memory_for_eight(runtime: str, tiny_model: Callable[..., Path]) -> None:
    if runtime == "fake":
        specs = residency.fake_models(60)
        options = json.dumps({"bytes": 100, "load_s": 0.02, "a_s": 0.002})
        settings = WorkerSettings(runtime="fake", runtime_options=options, memory_budget="850")
    else:
        specs = residency.copies([tiny_model("bert", seed=seed) for seed in range(3)], 60)
        estimate = footprint(specs[0], number_bytes=4)
        budget_bytes = 8.5 * (estimate.weights_bytes + estimate.activation_bytes)
        settings = WorkerSettings(precision="float32", threads=1, memory_budget=str(int(budget_bytes)))
    report = await residency.measure(specs, settings, rate=8, seconds=3)
    print(json.dumps(report))
    assert report["answered"] + sum(report["others"].values()) == report["sent"]
    assert report["others"].keys() <= REFUSALS
    assert report["evictions"] > 0
    assert report["used_bytes"] <= report["budget_bytes"]
