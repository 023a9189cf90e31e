"""What is refused at load: options, precisions, devices, weights with gaps, pickles, code of a model's own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.torch_runtime.batches import FLOAT32, options, random_batch

from shoal.catalog import resolve
from shoal.catalog.spec import Dense, ModelSpec, Normalize, Pooling
from shoal.errors import ModelRefused
from shoal.runtimes.base import RuntimeOptions
from shoal.runtimes.torch.options import choose_dtype
from shoal.runtimes.torch.runtime import TorchRuntime

CPU = torch.device("cpu")
HAS_BFLOAT16 = choose_dtype("auto", CPU) is torch.bfloat16


@pytest.fixture
def spec(tiny_model: Callable[..., Path], tmp_path: Path) -> ModelSpec:
    """A model in a directory that a test may spoil."""
    return resolve(str(shutil.copytree(tiny_model("bert"), tmp_path / "model")))


def test_memory_is_estimated_by_the_headers_of_the_files(runtime: TorchRuntime, spec: ModelSpec) -> None:
    estimate = runtime.footprint(spec, FLOAT32)
    in_use = runtime.load(spec, FLOAT32).facts.bytes_in_use
    assert 0.95 * in_use < estimate.weights_bytes < 1.5 * in_use  # position numbers are no weights
    assert estimate.activation_bytes > 0
    assert (estimate.device_bytes is None) == (not torch.cuda.is_available())


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"bogus": 1}, "bogus"),
        ({"layout": "diagonal"}, "diagonal"),
        ({"forward_tokens": -1}, "forward_tokens of the torch runtime is -1"),
        ({"forward_tokens": "many"}, "forward_tokens"),
        ({"device": "tpu"}, "device of the torch runtime is 'tpu'; there are cpu"),
        ({"device": "cpu", "graph_tokens": 64}, "graph_tokens is 64, but CUDA graphs need"),
    ],
)
def test_options_not_understood_are_refused(
    runtime: TorchRuntime, spec: ModelSpec, extra: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelRefused, match=message):
        runtime.load(spec, options(**extra))


def test_precisions_that_the_device_lacks_are_refused(runtime: TorchRuntime, spec: ModelSpec) -> None:
    with pytest.raises(ModelRefused, match="'int4'; allowed: auto, float32, bfloat16, float16"):
        runtime.load(spec, RuntimeOptions(precision="int4"))
    with pytest.raises(ModelRefused, match="float16, which the device cpu does not compute in natively"):
        runtime.load(spec, RuntimeOptions(precision="float16", extra={"device": "cpu"}))
    if not HAS_BFLOAT16:
        with pytest.raises(ModelRefused, match="bfloat16, which the device cpu"):
            runtime.load(spec, RuntimeOptions(precision="bfloat16", extra={"device": "cpu"}))


def test_packing_is_refused_where_it_would_change_vectors(
    runtime: TorchRuntime, tiny_model: Callable[..., Path]
) -> None:
    with pytest.raises(ModelRefused, match="layout is 'packed', but mpnet models only run padded"):
        runtime.load(resolve(str(tiny_model("mpnet"))), options(layout="packed"))


def change_weights(spec: ModelSpec, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(spec.weights[0])
    change(tensors)
    save_file(tensors, spec.weights[0], metadata={"format": "pt"})


def test_weights_with_gaps_are_refused_and_named(runtime: TorchRuntime, spec: ModelSpec) -> None:
    change_weights(spec, lambda tensors: tensors.pop("encoder.layer.1.output.dense.bias"))
    with pytest.raises(ModelRefused, match=r"missing: encoder\.layer\.1\.output\.dense\.bias"):
        runtime.load(spec, FLOAT32)


def test_weights_left_over_in_the_encoder_are_refused_and_named(runtime: TorchRuntime, spec: ModelSpec) -> None:
    change_weights(spec, lambda tensors: tensors.update({"encoder.layer.7.bias": torch.zeros(3)}))
    with pytest.raises(ModelRefused, match=r"left over: encoder\.layer\.7\.bias"):
        runtime.load(spec, FLOAT32)


def test_heads_and_position_numbers_may_be_left_over(runtime: TorchRuntime, spec: ModelSpec) -> None:
    batch = random_batch([5, 3], vocabulary=300)
    before = runtime.load(spec, FLOAT32).run(batch)["dense"]

    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors["cls.predictions.bias"] = torch.zeros(3)
        tensors["embeddings.position_ids"] = torch.arange(128)[None]
        tensors.pop("pooler.dense.weight", None)

    change_weights(spec, change)
    assert (runtime.load(spec, FLOAT32).run(batch)["dense"] == before).all()


def test_a_tensor_of_another_shape_is_refused(runtime: TorchRuntime, spec: ModelSpec) -> None:
    change_weights(spec, lambda tensors: tensors.update({"encoder.layer.0.output.dense.bias": torch.zeros(3)}))
    with pytest.raises(ModelRefused, match=r"misshapen: encoder\.layer\.0\.output\.dense\.bias"):
        runtime.load(spec, FLOAT32)


def test_pickles_are_refused(runtime: TorchRuntime, spec: ModelSpec) -> None:
    weights = Path(spec.weights[0])
    torch.save(load_file(weights), weights.parent / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(ModelRefused, match="transformers cannot load it"):
        runtime.load(spec, FLOAT32)


def test_code_in_the_directory_is_not_run(runtime: TorchRuntime, spec: ModelSpec) -> None:
    directory = Path(spec.directory)
    (directory / "evil.py").write_text("raise SystemExit('the code in the model directory was run')")
    config = json.loads((directory / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "evil.Model", "AutoConfig": "evil.Config"}
    config["model_type"] = "unheard-of"
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelRefused, match="trust_remote_code"):
        runtime.load(spec, FLOAT32)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ((), "the model has no output"),
        ((Normalize(),), "must be a Pooling"),
        ((Pooling(("mean",)), Pooling(("mean",))), "a second Pooling"),
        ((Pooling(("mean",)), Dense("x.safetensors", 64, 8, "tanh")), "in_features is 64.*gives 32"),
        (
            (Pooling(("mean",)), Dense("x.safetensors", 32, 8, "tanh")),
            r"x\.safetensors: tensor linear.weight has shape \[9, 32\]",
        ),
    ],
)
def test_modules_that_do_not_fit_are_refused(
    runtime: TorchRuntime, spec: ModelSpec, modules: tuple[object, ...], message: str
) -> None:
    save_file({"linear.weight": torch.zeros(9, 32)}, Path(spec.directory) / "x.safetensors")
    with pytest.raises(ModelRefused, match=message):
        runtime.load(msgspec.structs.replace(spec, modules=modules), FLOAT32)
