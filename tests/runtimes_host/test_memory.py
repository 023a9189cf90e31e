"""Memory of a real model in a real runtime host: estimated before, and given back after."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from shoal.catalog import resolve
from shoal.errors import ModelRefused
from shoal.runtimes.base import Features, RuntimeOptions
from shoal.runtimes.link import HostLink

OPTIONS = RuntimeOptions(precision="float32", num_threads=1)


def resident_bytes(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_unloading_gives_the_memory_back_again_and_again(demo_directory: Path) -> None:
    spec = resolve(str(demo_directory))
    batch = Features(np.full(2048, 2000, np.int32), np.full(16, 128, np.int32), np.zeros(16, np.int32))
    link = HostLink("test host")
    await link.start()
    await link.estimate(spec, "openvino", OPTIONS)  # the library is imported now
    before = resident_bytes(link.pid)
    for _ in range(3):
        facts = await link.load("demo", spec, "openvino", OPTIONS)
        await link.run("demo", batch)
        assert resident_bytes(link.pid) > before + facts.bytes_in_use
        await link.unload("demo")
        assert resident_bytes(link.pid) < before + facts.bytes_in_use  # the library's own caches stay
    await link.stop()


async def test_the_estimate_is_what_the_weights_take(tiny_model: Callable[..., Path]) -> None:
    spec = resolve(str(tiny_model("bert", pooling="mean", dense=((48, "Tanh"),))))
    link = HostLink("test host")
    await link.start()
    estimate = await link.estimate(spec, "openvino", OPTIONS)
    facts = await link.load("tiny", spec, "openvino", OPTIONS)
    await link.stop()
    assert facts.bytes_in_use <= estimate.weights_bytes < 1.5 * facts.bytes_in_use  # a head that nobody uses is counted
    assert estimate.activation_bytes > 0
    assert estimate.device_bytes is None


async def test_an_estimate_names_a_file_that_is_missing(tiny_model: Callable[..., Path]) -> None:
    spec = resolve(str(tiny_model("bert")))
    link = HostLink("test host")
    await link.start()
    with pytest.raises(ModelRefused, match=r"gone/model\.safetensors is missing"):
        await link.estimate(msgspec.structs.replace(spec, weights=("/gone/model.safetensors",)), "openvino", OPTIONS)
    await link.stop()
