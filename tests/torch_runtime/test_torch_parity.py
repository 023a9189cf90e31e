"""Every architecture, pooling and module against sentence-transformers, in both layouts, alone and in company."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from tests.families.test_families_parity import ROWS
from tests.torch_runtime.batches import (
    FLOAT32,
    assert_equal,
    batches,
    options,
    random_batch,
    together_and_alone,
)

from parity import Parity
from shoal.adapters import open_adapter
from shoal.catalog import resolve
from shoal.catalog.spec import ModelSpec
from shoal.errors import InvalidRequest
from shoal.runtimes.torch.runtime import TorchRuntime
from shoal.types import EmbedOptions
from tiny_models import NASTY_TEXTS, encode_reference

Build = Callable[..., Path]
Judge = Callable[[Path], SentenceTransformer]

TEXTS = [*NASTY_TEXTS, "mountains", "query: where is the sea", "The quick brown fox and the lazy dog. " * 3]
FEW = ["cat", "The quick brown fox jumps.", "a", "hello world " * 20, "two words", "東京は日本の首都です"]
LAYOUTS = {"bert": "packed", "roberta": "packed", "xlm-roberta": "packed", "distilbert": "packed", "mpnet": "padded"}


@pytest.mark.parametrize("layout", ["auto", "padded"])
@pytest.mark.parametrize("name", ROWS)
def test_architecture_equals_the_reference(
    runtime: TorchRuntime, tiny_model: Build, reference: Judge, parity: Parity, name: str, layout: str
) -> None:
    directory = tiny_model(ROWS[name])
    spec = resolve(str(directory))
    texts = [text for text in TEXTS if has_tokens(spec, text)]
    expected = encode_reference(reference(directory), texts)
    session = runtime.load(spec, options(layout=layout))
    assert layout == "auto" or session.facts.layout == "padded"
    served = together_and_alone(session, batches(directory, texts))
    parity.check(ROWS[name].architecture, "dense", "torch", expected, *served)
    session.close()


def has_tokens(spec: ModelSpec, text: str) -> bool:
    """Some families put no special token around a text, so that a blank one is refused."""
    try:
        open_adapter(spec).prepare([text], EmbedOptions())
    except InvalidRequest:
        return False
    return True


@pytest.mark.parametrize("architecture", LAYOUTS)
def test_what_can_run_packed_does(runtime: TorchRuntime, tiny_model: Build, architecture: str) -> None:
    session = runtime.load(resolve(str(tiny_model(architecture))), FLOAT32)
    assert session.facts.layout == LAYOUTS[architecture]


def test_a_window_that_packing_would_take_for_another_is_found_out(runtime: TorchRuntime, tiny_model: Build) -> None:
    """transformers' flash attention, whose words packed attention takes, differs from its own masks here by a token."""
    session = runtime.load(resolve(str(tiny_model(ROWS["mistral-bidirectional"]))), FLOAT32)
    assert session.facts.layout == "padded"


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize(
    "pooling",
    ["cls", "mean", "max", "weightedmean", "lasttoken", "mean_sqrt_len_tokens", ("max", "cls", "weightedmean")],
)
def test_pooling_equals_the_reference(
    runtime: TorchRuntime,
    tiny_model: Build,
    reference: Judge,
    pooling: str | tuple[str, ...],
    include_prompt: bool,
) -> None:
    directory = tiny_model("roberta", pooling=pooling, include_prompt=include_prompt, normalize=False)
    expected = encode_reference(reference(directory), FEW, prompt="query: where ")
    session = runtime.load(resolve(str(directory)), FLOAT32)
    for vectors in together_and_alone(session, batches(directory, FEW, prompt="query: where ")):
        assert_equal(vectors, expected)


@pytest.mark.parametrize("activation", ["Identity", "Tanh", "ReLU", "GELU", "Sigmoid"])
def test_modules_equal_the_reference(
    runtime: TorchRuntime, tiny_model: Build, reference: Judge, activation: str
) -> None:
    directory = tiny_model("mpnet", pooling=("mean", "max"), dense=((24, activation), (16, "Tanh")))
    expected = encode_reference(reference(directory), FEW)
    session = runtime.load(resolve(str(directory)), FLOAT32)
    for vectors in together_and_alone(session, batches(directory, FEW)):
        assert_equal(vectors, expected)


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_a_batch_of_many_forwards_equals_one_of_one(runtime: TorchRuntime, tiny_model: Build, layout: str) -> None:
    spec = resolve(str(tiny_model("bert")))
    batch = random_batch([3, 100, 7, 7, 50, 128, 1, 2, 90, 90, 4], vocabulary=300)
    whole = runtime.load(spec, options(layout=layout)).run(batch)["dense"]
    in_parts = runtime.load(spec, options(layout=layout, forward_tokens=64)).run(batch)["dense"]
    assert_equal(in_parts, whole)


def test_the_demo_model_equals_the_reference(runtime: TorchRuntime, demo_directory: Path, reference: Judge) -> None:
    texts = [*FEW, "word " * 300, *(f"sentence number {number} of many" for number in range(20))]
    expected = encode_reference(reference(demo_directory), texts)
    session = runtime.load(resolve(str(demo_directory)), FLOAT32)
    for vectors in together_and_alone(session, batches(demo_directory, texts)):
        assert_equal(vectors, expected)
