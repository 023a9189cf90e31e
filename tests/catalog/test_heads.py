"""What lies behind an encoder: which heads make a model a ranker, and what is refused, by file and key."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.catalog import resolve
from shoal.errors import ModelRefused
from tiny_heads import TinyHead

Build = Callable[[TinyHead], Path]
CONFIG, STATED = "config.json", "config_sentence_transformers.json"


@pytest.fixture
def changed(tiny_head: Build, tmp_path: Path) -> Callable[..., Path]:
    """`changed(recipe, file, {...})`: a model's directory with keys of one of its files changed, None = removed."""

    def change(recipe: TinyHead, file: str = CONFIG, keys: dict[str, Any] | None = None) -> Path:
        target = tmp_path / "model"
        shutil.copytree(tiny_head(recipe), target)
        content = json.loads((target / file).read_text())
        content.update(keys or {})
        (target / file).write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
        return target

    return change


@pytest.mark.parametrize(
    ("recipe", "operations"),
    [
        (TinyHead("bert"), ("rerank", "classify")),
        (TinyHead("bert", num_labels=2), ("rerank", "classify")),
        (TinyHead("bert", "cross", num_labels=2, labels=("irrelevant", "relevant")), ("rerank", "classify")),
        (TinyHead("bert", num_labels=2, labels=("NEGATIVE", "POSITIVE")), ("classify",)),
        (TinyHead("bert", "cross", num_labels=3), ("classify",)),
        (TinyHead("bert", "sparse"), ("embed",)),
    ],
)
def test_what_a_model_can_do_follows_from_its_files(
    recipe: TinyHead, operations: tuple[str, ...], tiny_head: Build
) -> None:
    """Two labels with names of their own rank only where the model says that it is a cross-encoder."""
    spec = resolve(str(tiny_head(recipe)))
    assert spec.operations == spec.card.operations == (*operations, "tokenize")
    assert spec.dimensions == 0
    assert spec.outputs == spec.card.outputs == (("sparse",) if recipe.kind == "sparse" else ())
    if spec.classifier is not None:
        assert len(spec.card.labels) == recipe.num_labels
        assert recipe.labels in ((), spec.card.labels)


@pytest.mark.parametrize(
    ("keys", "activation"),
    [
        ({}, "sigmoid"),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, "identity"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, "identity"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}, "sigmoid"),
    ],
)
def test_the_activation_is_the_declared_one(
    keys: dict[str, Any], activation: str, changed: Callable[..., Path]
) -> None:
    spec = resolve(str(changed(TinyHead("bert"), CONFIG, keys)))
    assert spec.classifier is not None
    assert spec.classifier.activation == activation


REFUSED: list[tuple[TinyHead, str, dict[str, Any], str]] = [
    (TinyHead("bert"), CONFIG, {"id2label": {"0": "a", "1": "b"}}, "model.safetensors:classifier.weight"),
    (TinyHead("bert"), CONFIG, {"id2label": {"1": "a"}}, "config.json:id2label"),
    (TinyHead("bert"), CONFIG, {"id2label": ["a"]}, "config.json:id2label"),
    (TinyHead("bert"), CONFIG, {"problem_type": "guesswork"}, "config.json:problem_type"),
    (
        TinyHead("bert"),
        CONFIG,
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}},
        "config.json:activation_fn",
    ),
    (TinyHead("modernbert"), CONFIG, {"classifier_pooling": "last"}, "config.json:classifier_pooling"),
    (TinyHead("bert", "cross"), STATED, {"model_type": "SentenceTransformer"}, f"{STATED}:model_type"),
    (
        TinyHead("bert", "cross"),
        STATED,
        {"prompts": {"query": "q: "}, "default_prompt_name": "query"},
        f"{STATED}:default_prompt_name",
    ),
    (
        TinyHead("bert", "cross"),
        "sentence_bert_config.json",
        {"transformer_task": "fill-mask"},
        "sentence_bert_config.json:transformer_task",
    ),
    (
        TinyHead("bert", "sparse"),
        "1_SpladePooling/config.json",
        {"pooling_strategy": "mean"},
        "1_SpladePooling/config.json:pooling_strategy",
    ),
    (
        TinyHead("bert", "sparse"),
        "1_SpladePooling/config.json",
        {"temperature": 2},
        "1_SpladePooling/config.json:temperature",
    ),
    (
        TinyHead("bert", "sparse"),
        CONFIG,
        {"tie_word_embeddings": False},
        "model.safetensors:cls.predictions.decoder.weight",
    ),
]


@pytest.mark.parametrize(("recipe", "file", "keys", "param"), REFUSED)
def test_what_is_not_understood_is_refused_by_file_and_key(
    recipe: TinyHead, file: str, keys: dict[str, Any], param: str, changed: Callable[..., Path]
) -> None:
    with pytest.raises(ModelRefused) as caught:
        resolve(str(changed(recipe, file, keys)))
    assert caught.value.param == param


def test_weights_without_a_classifier_are_refused(tiny_head: Build, tmp_path: Path) -> None:
    """The file of a masked LM under the config of a classifier."""
    target = tmp_path / "model"
    shutil.copytree(tiny_head(TinyHead("bert")), target)
    shutil.copy(tiny_head(TinyHead("bert", "sparse")) / "model.safetensors", target)
    with pytest.raises(ModelRefused) as caught:
        resolve(str(target))
    assert caught.value.param == "model.safetensors:classifier.weight"
