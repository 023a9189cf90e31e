"""Outputs with a row a token, and tokens that none looks at: as the openvino runtime gives them, in either layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.torch_runtime.batches import FLOAT32, options, random_batch

from shoal.catalog import resolve
from shoal.catalog.spec import Dense, Expansion, ModelSpec, MultiVector, Normalize, Side, TokenWeights
from shoal.runtimes.base import Arrays, Features
from shoal.runtimes.openvino.runtime import OpenVINORuntime
from shoal.runtimes.torch.runtime import TorchRuntime
from tiny_models import TinyModel

LENGTHS = (40, 3, 17, 17, 64, 1, 3, 17)


def of_three(directory: Path, scratch: Path) -> ModelSpec:
    """A dense model with bge-m3's further heads; expansions of its queries are looked at by none."""
    torch.manual_seed(1)
    tensors = {"vector.weight": torch.randn(16, 32), "one.weight": torch.randn(1, 32), "one.bias": torch.randn(1)}
    save_file(tensors, scratch / "heads.safetensors")
    file = str(scratch / "heads.safetensors")
    vector = Dense(file, 32, 16, "identity", has_bias=False, name="vector", is_alone=False)
    return msgspec.structs.replace(
        resolve(str(directory)),
        multivector=MultiVector((vector, Normalize()), 16, Side(64, Expansion(32, 4)), Side(128)),
        sparse=TokenWeights(Dense(file, 32, 1, "relu", name="one", is_alone=False), excluded_ids=(0, 2, 3)),
    )


@pytest.fixture(params=["bert", "xlm-roberta", "mpnet", "modernbert"])
def spec(request: pytest.FixtureRequest, tiny_model: Callable[..., Path], tmp_path: Path) -> ModelSpec:
    recipe = TinyModel(request.param, config=(("local_attention", 16),) if request.param == "modernbert" else ())
    return of_three(tiny_model(recipe), tmp_path)


def query_batch() -> Features:
    batch = random_batch(LENGTHS, vocabulary=300)
    kept = np.random.default_rng(2).random(batch.num_tokens) < 0.7
    num_keys = np.maximum(1, batch.lengths * 2 // 3).astype(np.int32)
    return msgspec.structs.replace(batch, kept=kept, num_keys=num_keys)


def assert_same(left: Arrays, right: Arrays) -> None:
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert array.dtype == right[name].dtype, name
        if array.dtype == np.float32:
            np.testing.assert_allclose(array, right[name], atol=2e-5 * max(1.0, float(np.abs(array).max(initial=0))))
        else:
            np.testing.assert_array_equal(array, right[name])


@pytest.mark.parametrize("layout", ["auto", "padded"])
def test_all_outputs_in_one_forward_are_those_of_openvino(runtime: TorchRuntime, spec: ModelSpec, layout: str) -> None:
    session, judge = runtime.load(spec, options(layout=layout)), OpenVINORuntime().load(spec, FLOAT32)
    assert set(session.facts.outputs) == {"dense", "sparse", "multivector"}
    documents = msgspec.structs.replace(query_batch(), num_keys=None)
    for batch in (query_batch(), documents, random_batch(LENGTHS, vocabulary=300)):
        assert_same(session.run(batch), judge.run(batch))


def test_hidden_tokens_do_not_keep_a_model_from_being_packed(
    runtime: TorchRuntime, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    session = runtime.load(of_three(tiny_model("bert"), tmp_path), FLOAT32)
    assert session.facts.layout == "packed"
    parts = [session.run(one) for one in alone(query_batch())]
    together = session.run(query_batch())
    joined = np.concatenate([part["multivector.rows"] for part in parts])
    np.testing.assert_allclose(together["multivector.rows"], joined, atol=1e-5)


def alone(batch: Features) -> list[Features]:
    """Each item in a batch of its own."""
    ends = np.cumsum(batch.lengths)
    assert batch.kept is not None
    assert batch.num_keys is not None
    return [
        Features(
            batch.token_ids[end - length : end],
            batch.lengths[item : item + 1],
            batch.pool_from[item : item + 1],
            kept=batch.kept[end - length : end],
            num_keys=batch.num_keys[item : item + 1],
        )
        for item, (end, length) in enumerate(zip(ends, batch.lengths, strict=True))
    ]
