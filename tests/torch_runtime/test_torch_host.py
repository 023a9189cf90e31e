"""The torch runtime in a real runtime host; the process that asks never imports torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer
from tests.torch_runtime.batches import assert_equal

from tiny_models import encode_reference

TEXTS = ["cat", "The quick brown fox jumps over the lazy dog.", "hello world " * 30]

SIDECAR = """
import asyncio, json, sys
from shoal.adapters import open_adapter
from shoal.catalog import resolve
from shoal.errors import ModelRefused
from shoal.runtimes.base import RuntimeOptions
from shoal.runtimes.link import HostLink
from shoal.types import EmbedOptions

async def main():
    spec = resolve(sys.argv[1])
    adapter = open_adapter(spec)
    link = HostLink("torch host")
    await link.start()
    try:
        await link.load("m", spec, "torch", RuntimeOptions(extra={"bogus": 1}))
    except ModelRefused as error:
        refusal = str(error)
    facts = await link.load("m", spec, "torch", RuntimeOptions(precision="float32"))
    items = adapter.prepare(json.loads(sys.argv[2]), EmbedOptions())
    arrays, seconds = await link.run("m", adapter.collate(items))
    await link.unload("m")
    await link.stop()
    print(json.dumps({
        "layout": facts.layout, "vectors": arrays["dense"].tolist(), "seconds": seconds, "refusal": refusal,
        "imported": sorted({"torch", "transformers"} & set(sys.modules)),
    }))

asyncio.run(main())
"""


def test_a_host_serves_with_torch_and_its_parent_imports_none(
    tiny_model: Callable[..., Path], reference: Callable[[Path], SentenceTransformer]
) -> None:
    directory = tiny_model("xlm-roberta")
    command = [sys.executable, "-c", SIDECAR, str(directory), json.dumps(TEXTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["imported"] == []
    assert told["layout"] == "packed"
    assert "bogus" in told["refusal"]
    assert told["seconds"] > 0
    assert_equal(np.array(told["vectors"], np.float32), encode_reference(reference(directory), TEXTS))
