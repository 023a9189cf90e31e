"""Each family, each pooling, each module, against transformers and sentence-transformers on random weights."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from tests.runtimes.runtime_models import MAX_LENGTH, build, cosines, features, random_texts

from shoal.catalog.spec import Dense, Module, Normalize, Pooling
from shoal.runtimes.base import RuntimeOptions
from shoal.runtimes.openvino.graph import build_graph
from shoal.runtimes.openvino.runtime import OpenVINORuntime

FLOAT32 = RuntimeOptions(precision="float32")
LENGTHS = (1, 2, 3, 5, 9, 17, 40, 64, 65, 100, 129, MAX_LENGTH, 4, 7, 31)
PLAIN = (Pooling(("mean",)), Normalize())
ALL_MODES = ("cls", "mean", "max", "weighted_mean", "last_token", "mean_sqrt_len")


def check(
    directory: Path,
    runtime: OpenVINORuntime,
    family: str,
    modules: tuple[Module, ...] = PLAIN,
    prompt: int = 0,
    **build_options: object,
) -> None:
    model = build(directory, family, modules, **build_options)  # type: ignore[arg-type]
    texts = random_texts([length for length in LENGTHS if length > prompt])
    session = runtime.load(model.spec, FLOAT32)
    vectors = session.run(features(texts, pool_from=prompt))["dense"]
    expected = model.reference(texts, prompt)
    assert vectors.dtype == np.float32
    assert vectors.shape == expected.shape == (len(texts), model.spec.dimensions)
    assert cosines(vectors, expected).min() >= 0.999999
    np.testing.assert_allclose(vectors, expected, atol=2e-5 * max(1.0, float(np.abs(expected).max())))


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "distilbert", "mpnet"])
def test_family_equals_the_reference(tmp_path: Path, runtime: OpenVINORuntime, family: str) -> None:
    check(tmp_path, runtime, family)


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "mpnet"])
def test_the_last_layer_computes_only_what_is_pooled(tmp_path: Path, runtime: OpenVINORuntime, family: str) -> None:
    first = (Pooling(("cls",)), Normalize())
    check(tmp_path, runtime, family, first)
    spec = build(tmp_path, family, first).spec
    assert "firsts" in build_graph(spec).input_names
    for others in (PLAIN, (Pooling(("cls", "mean")),), (Pooling(("cls",), include_prompt=False),)):
        assert "firsts" not in build_graph(msgspec.structs.replace(spec, modules=others)).input_names


@pytest.mark.parametrize("name", ["gelu_new", "relu", "silu", "gelu_pytorch_tanh", "quick_gelu", "tanh"])
def test_activation_equals_the_reference(tmp_path: Path, runtime: OpenVINORuntime, name: str) -> None:
    check(tmp_path, runtime, "bert", hidden_act=name)


def test_distilbert_takes_its_own_activation_key(tmp_path: Path, runtime: OpenVINORuntime) -> None:
    check(tmp_path, runtime, "distilbert", activation="relu")


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("modes", [*[(mode,) for mode in ALL_MODES], ("mean", "cls"), ALL_MODES])
def test_pooling_equals_the_reference(
    tmp_path: Path, runtime: OpenVINORuntime, modes: tuple[str, ...], include_prompt: bool
) -> None:
    pooling = Pooling(modes, include_prompt)  # type: ignore[arg-type]
    check(tmp_path, runtime, "bert", (pooling,), prompt=3)


@pytest.mark.parametrize("mode", ["cls", "mean", "weighted_mean", "last_token", "mean_sqrt_len"])
def test_a_text_that_is_all_prompt_equals_the_reference(tmp_path: Path, runtime: OpenVINORuntime, mode: str) -> None:
    model = build(tmp_path, "bert", (Pooling((mode,), include_prompt=False),))  # type: ignore[arg-type]
    texts = random_texts([4, 3, 8])
    vectors = runtime.load(model.spec, FLOAT32).run(features(texts, pool_from=4))["dense"]
    np.testing.assert_allclose(vectors, model.reference(texts, prompt_length=4), atol=1e-5)


@pytest.mark.parametrize("activation", ["identity", "tanh", "relu", "gelu", "sigmoid"])
def test_modules_equal_the_reference(tmp_path: Path, runtime: OpenVINORuntime, activation: str) -> None:
    first = Dense("2_Dense/model.safetensors", 96, 24, activation)  # type: ignore[arg-type]
    second = Dense("3_Dense/model.safetensors", 24, 32, "identity", has_bias=False)
    check(tmp_path, runtime, "mpnet", (Pooling(("mean", "max")), first, second, Normalize()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_other_number_formats_equal_the_reference(
    tmp_path: Path, runtime: OpenVINORuntime, dtype: torch.dtype
) -> None:
    check(tmp_path, runtime, "roberta", dtype=dtype)


@pytest.mark.parametrize("mode", ["cls", "mean", "last_token"])
def test_neighbours_do_not_matter(tmp_path: Path, runtime: OpenVINORuntime, mode: str) -> None:
    model = build(tmp_path, "mpnet", (Pooling((mode,)), Normalize()))  # type: ignore[arg-type]
    session = runtime.load(model.spec, FLOAT32)
    a, b, c = random_texts([5, 50, MAX_LENGTH])
    alone = session.run(features([a]))["dense"][0]
    for company in ([a, b, c], [c, b, a], [a] + [c] * 31, [b] * 7 + [a]):
        place = next(i for i, text in enumerate(company) if text is a)
        vector = session.run(features(company))["dense"][place]
        np.testing.assert_allclose(vector, alone, atol=1e-5)
