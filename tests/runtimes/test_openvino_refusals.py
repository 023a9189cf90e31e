"""A model that is not fully understood is refused, naming file and key; never wrong vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.runtimes.runtime_models import MAX_LENGTH, VOCABULARY, build, features

from shoal.catalog.spec import Dense, ModelSpec, Normalize, Pooling
from shoal.errors import InvalidRequest, ModelRefused
from shoal.runtimes.base import RuntimeOptions
from shoal.runtimes.openvino.runtime import OpenVINORuntime

PLAIN = (Pooling(("mean",)), Normalize())
TENSOR = "encoder.layer.1.output.dense.weight"


@pytest.fixture
def spec(tmp_path: Path) -> ModelSpec:
    return build(tmp_path, "bert", PLAIN).spec


def refused(runtime: OpenVINORuntime, spec: ModelSpec, *words: str, **options: Any) -> None:
    with pytest.raises(ModelRefused) as caught:
        runtime.load(spec, RuntimeOptions(**options))
    for word in words:
        assert word in str(caught.value)


def rewrite(spec: ModelSpec, change: Any) -> None:
    tensors = load_file(spec.weights[0])
    change(tensors)
    Path(spec.weights[0]).unlink()
    save_file(tensors, spec.weights[0])


def changed(spec: ModelSpec, **config: Any) -> ModelSpec:
    return msgspec.structs.replace(spec, config=spec.config | config)


def test_a_missing_tensor(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    rewrite(spec, lambda tensors: tensors.pop(TENSOR))
    refused(runtime, spec, "model.safetensors", TENSOR, "missing")


def test_a_tensor_too_many(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    rewrite(spec, lambda tensors: tensors.update({"encoder.layer.1.lora.weight": np.zeros(3, np.float32)}))
    refused(runtime, spec, "model.safetensors", "encoder.layer.1.lora.weight")


def test_more_layers_in_the_file_than_in_the_config(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    refused(runtime, changed(spec, num_hidden_layers=2), "model.safetensors", "encoder.layer.2.")


def test_a_tensor_of_another_shape(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    rewrite(spec, lambda tensors: tensors.update({TENSOR: np.zeros((48, 79), np.float32)}))
    refused(runtime, spec, "model.safetensors", TENSOR, "[48, 79]", "[48, 80]")


def test_a_tensor_of_integers(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    rewrite(spec, lambda tensors: tensors.update({TENSOR: tensors[TENSOR].astype(np.int8)}))
    refused(runtime, spec, "model.safetensors", TENSOR, "I8")


def test_a_file_cut_short(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    content = Path(spec.weights[0]).read_bytes()
    Path(spec.weights[0]).write_bytes(content[:-1000])
    refused(runtime, spec, "model.safetensors", "cut short")


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"\x02" + b"\0" * 7 + b"[]"])
def test_a_file_that_is_something_else(runtime: OpenVINORuntime, spec: ModelSpec, content: bytes) -> None:
    Path(spec.weights[0]).write_bytes(content)
    refused(runtime, spec, "model.safetensors", "not a safetensors file")


def test_a_missing_file(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    Path(spec.weights[0]).unlink()
    refused(runtime, spec, "model.safetensors", "missing")


def test_an_unknown_family(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    refused(runtime, msgspec.structs.replace(spec, family="gpt9"), "config.json", "gpt9", "bert")


def test_an_unknown_activation(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    refused(runtime, changed(spec, hidden_act="gelu_2031"), "config.json", "hidden_act", "gelu_2031")


def test_a_config_without_a_key(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    config = {key: value for key, value in spec.config.items() if key != "layer_norm_eps"}
    refused(runtime, msgspec.structs.replace(spec, config=config), "config.json", "layer_norm_eps")


def test_heads_that_do_not_divide_the_width(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    refused(runtime, changed(spec, num_attention_heads=5), "config.json", "48", "5")


def test_other_buckets_for_mpnet(runtime: OpenVINORuntime, tmp_path: Path) -> None:
    spec = build(tmp_path, "mpnet", PLAIN).spec
    refused(runtime, changed(spec, relative_attention_num_buckets=16), "relative_attention_num_buckets", "16")


def test_no_pooling(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    refused(runtime, msgspec.structs.replace(spec, modules=(Normalize(),)), "modules.json", "Pooling")


def test_a_dense_whose_weights_are_missing(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    dense = Dense("2_Dense/model.safetensors", 48, 8, "tanh")
    refused(runtime, msgspec.structs.replace(spec, modules=(PLAIN[0], dense)), "2_Dense/model.safetensors", "missing")


def test_a_dense_that_does_not_fit(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    dense = Dense("2_Dense/model.safetensors", 47, 8, "tanh")
    refused(runtime, msgspec.structs.replace(spec, modules=(PLAIN[0], dense)), "2_Dense", "in_features", "47", "48")


def test_an_unknown_precision_or_option(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    refused(runtime, spec, "precision", "int3", precision="int3")
    refused(runtime, spec, "speed", extra={"speed": 9})


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([VOCABULARY], ("150", "vocabulary")),
        ([-1], ("-1", "vocabulary")),
        ([3] * (MAX_LENGTH + 3), (str(MAX_LENGTH + 3), "the model takes")),
    ],
)
def test_ids_and_lengths_out_of_range(
    runtime: OpenVINORuntime, spec: ModelSpec, ids: list[int], words: tuple[str, ...]
) -> None:
    session = runtime.load(spec, RuntimeOptions())
    with pytest.raises(InvalidRequest) as caught:
        session.run(features([np.array([5, 6], np.int32), np.array(ids, np.int32)]))
    assert all(word in str(caught.value) for word in words)
    assert np.isfinite(session.run(features([np.array([5, 6], np.int32)]))["dense"]).all()


def test_a_head_beside_the_encoder_is_left_alone(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    texts = [np.arange(9, dtype=np.int32)]
    plain = runtime.load(spec, RuntimeOptions()).run(features(texts))["dense"]

    def add_prefix_and_head(tensors: dict[str, Any]) -> None:
        encoder = {f"bert.{name}": tensor for name, tensor in tensors.items()}
        tensors.clear()
        tensors.update(encoder, **{"cls.predictions.bias": np.zeros(VOCABULARY, np.float32)})

    rewrite(spec, add_prefix_and_head)
    prefixed = msgspec.structs.replace(spec, weights_prefix="bert.")
    np.testing.assert_allclose(runtime.load(prefixed, RuntimeOptions()).run(features(texts))["dense"], plain, atol=1e-6)


def test_facts(runtime: OpenVINORuntime, spec: ModelSpec) -> None:
    facts = runtime.load(spec, RuntimeOptions(precision="float32", num_threads=1)).facts
    stored = sum(tensor.size for name, tensor in load_file(spec.weights[0]).items() if "pooler" not in name)
    assert facts.runtime == "openvino"
    assert facts.precision == "float32"
    assert facts.bytes_in_use == 4 * stored
    assert json.dumps(msgspec.to_builtins(facts))
