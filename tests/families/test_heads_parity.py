"""Each family's classifier and vocabulary head, from saved files to scores and weights, against sentence-transformers.

To add a family: one row in `CROSS_ENCODERS`, and one in `SPARSE_ENCODERS` if it has a vocabulary head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from families.conftest import ONE_THREAD
from parity import Parity
from shoal.adapters import open_adapter
from shoal.adapters.base import Labels, Prepared, Scores, SparseVectors
from shoal.catalog import resolve
from shoal.catalog.spec import ModelSpec
from shoal.runtimes.registry import open_runtime
from shoal.types import ClassifyOptions, EmbedOptions, Options, RerankOptions
from tiny_heads import (
    TinyHead,
    cross_scores,
    load_cross_encoder,
    load_sparse_encoder,
    sparse_weights,
)
from tiny_models import NASTY_TEXTS, quiet

Build = Callable[[TinyHead], Path]
QUERY = "What is the capital of France?"
CROSS_ENCODERS = {
    "bert": TinyHead("bert", "cross"),
    "bert-bare": TinyHead("bert"),
    "bert-identity": TinyHead("bert", "cross", activation="Identity"),
    "roberta": TinyHead("roberta", "cross"),
    "xlm-roberta": TinyHead("xlm-roberta", "cross"),
    "distilbert": TinyHead("distilbert", "cross"),
    "mpnet": TinyHead("mpnet", "cross"),
    "electra": TinyHead("electra", "cross"),
    "ernie": TinyHead("ernie", "cross", config=(("use_task_id", True),)),
    "deberta-v3": TinyHead("deberta-v2", "cross", config=(("type_vocab_size", 0), ("position_biased_input", False))),
    "deberta-v2-with-types": TinyHead("deberta-v2", "cross", config=(("type_vocab_size", 2),)),
    "modernbert": TinyHead("modernbert", "cross"),
    "modernbert-mean": TinyHead("modernbert", config=(("classifier_pooling", "mean"), ("classifier_bias", True))),
}
SPARSE_ENCODERS = {
    "bert": TinyHead("bert", "sparse"),
    "bert-sum": TinyHead("bert", "sparse", splade=(("pooling_strategy", "sum"),)),
    "bert-log1p": TinyHead("bert", "sparse", splade=(("activation_function", "log1p_relu"),)),
    "ernie": TinyHead("ernie", "sparse"),
    "roberta": TinyHead("roberta", "sparse"),
    "xlm-roberta": TinyHead("xlm-roberta", "sparse"),
    "distilbert": TinyHead("distilbert", "sparse"),
    "mpnet": TinyHead("mpnet", "sparse"),
    "modernbert": TinyHead("modernbert", "sparse"),
}


class Served:
    """A model from its files to what a caller gets: all items in one batch, and each alone."""

    def __init__(self, directory: Path, runtime: str = "openvino") -> None:
        self.spec: ModelSpec = resolve(str(directory))
        self.adapter = open_adapter(self.spec)
        self.session = open_runtime(runtime).load(self.spec, ONE_THREAD)

    def prepare(self, items: Sequence[str], options: Options) -> list[Prepared]:
        self.adapter.check(options)
        return self.adapter.prepare(items, options)

    def together(self, items: Sequence[str], options: Options) -> Any:
        raw = self.session.run(self.adapter.collate(self.prepare(items, options)))
        (finished,) = self.adapter.finish(raw, options)
        return finished

    def alone(self, items: Sequence[str], options: Options) -> list[Any]:
        return [self.together([item], options) for item in items]


@pytest.mark.parametrize("runtime", ["openvino", "torch"])
@pytest.mark.parametrize("name", CROSS_ENCODERS)
def test_a_cross_encoder_equals_the_reference(name: str, runtime: str, tiny_head: Build, parity: Parity) -> None:
    """C38, C14, C15."""
    directory = tiny_head(CROSS_ENCODERS[name])
    served, judge = Served(directory, runtime), load_cross_encoder(directory)
    assert served.spec.operations == ("rerank", "classify", "tokenize")
    assert served.spec.rerank_method == "cross_encoder"
    for raw_scores, activation in ((False, judge.activation_fn), (True, torch.nn.Identity())):
        options = RerankOptions(QUERY, raw_scores=raw_scores)
        expected = cross_scores(judge, QUERY, NASTY_TEXTS, activation_fn=activation)
        assert expected.std() > 1e-3
        together: Scores = served.together(NASTY_TEXTS, options)
        alone = np.concatenate([scores.values for scores in served.alone(NASTY_TEXTS, options)])
        parity.check(CROSS_ENCODERS[name].architecture, "rerank", runtime, expected, together.values, alone)


@pytest.mark.parametrize(
    "name", ["bert", "roberta", "xlm-roberta", "mpnet", "electra", "modernbert", "distilbert", "deberta-v3"]
)
def test_pairs_are_the_models_own_tokens(name: str, tiny_head: Build) -> None:
    """Special tokens and token types of a pair, and only the document cut."""
    directory = tiny_head(CROSS_ENCODERS[name])
    served, judge = Served(directory), load_cross_encoder(directory)
    prepared = served.prepare(NASTY_TEXTS, RerankOptions(QUERY))
    for text, pair in zip(NASTY_TEXTS, prepared, strict=True):
        expected = judge.preprocess([(QUERY, text)])
        assert pair.token_ids.tolist() == expected["input_ids"][0].tolist(), text[:60]
        types = np.zeros_like(pair.token_ids) if pair.token_type_ids is None else pair.token_type_ids
        assert types.tolist() == expected.get("token_type_ids", torch.zeros_like(expected["input_ids"]))[0].tolist()


def test_two_labels_rank_by_the_softmax_of_the_second(tiny_head: Build) -> None:
    """C38: a raw score is the log-odds."""
    directory = tiny_head(TinyHead("xlm-roberta", "cross", num_labels=2))
    served, judge = Served(directory), load_cross_encoder(directory)
    expected = cross_scores(judge, QUERY, NASTY_TEXTS, apply_softmax=True)[:, 1]
    np.testing.assert_allclose(served.together(NASTY_TEXTS, RerankOptions(QUERY)).values, expected, atol=1e-4)
    logits = cross_scores(judge, QUERY, NASTY_TEXTS)
    raw = served.together(NASTY_TEXTS, RerankOptions(QUERY, raw_scores=True)).values
    np.testing.assert_allclose(raw, logits[:, 1] - logits[:, 0], atol=1e-4)


@pytest.mark.parametrize(
    "recipe",
    [
        TinyHead("distilbert", num_labels=2, labels=("NEGATIVE", "POSITIVE")),
        TinyHead("roberta", num_labels=4),
        TinyHead("bert", num_labels=3, config=(("problem_type", "multi_label_classification"),)),
        TinyHead("bert", num_labels=1, config=(("problem_type", "regression"),)),
        TinyHead("mpnet", num_labels=1),
    ],
)
@pytest.mark.parametrize("runtime", ["openvino", "torch"])
def test_a_classifier_equals_the_pipeline(recipe: TinyHead, runtime: str, tiny_head: Build, parity: Parity) -> None:
    directory = tiny_head(recipe)
    served = Served(directory, runtime)
    with quiet():
        pipeline = transformers_pipeline("text-classification", directory)
        texts = [text for text in NASTY_TEXTS if text]
        rows = [pipeline([text], top_k=None, truncation=True)[0] for text in texts]
    expected = by_label([[(row["label"], row["score"]) for row in ranked] for ranked in rows])
    finished: Labels = served.together(texts, ClassifyOptions())
    for ranked in finished.ranked:
        assert [score for _, score in ranked] == sorted((score for _, score in ranked), reverse=True)
    alone = [ranked for one in served.alone(texts, ClassifyOptions()) for ranked in one.ranked]
    parity.check(
        recipe.architecture,
        "classify",
        runtime,
        expected,
        by_label(finished.ranked),
        by_label(alone),
        reference="transformers",
    )
    best: Labels = served.together(texts, ClassifyOptions(top_k=1))
    assert [ranked[:1] for ranked in finished.ranked] == best.ranked


def by_label(rows: Sequence[Sequence[tuple[str, float]]]) -> npt.NDArray[np.float64]:
    """Scores of each text in the order of their labels' names."""
    names = sorted(dict(rows[0]))
    assert all(sorted(dict(row)) == names for row in rows)
    return np.array([[dict(row)[name] for name in names] for row in rows])


@pytest.mark.parametrize("multi_label", [False, True])
def test_labels_of_the_callers_own_are_judged_as_the_pipeline_does(multi_label: bool, tiny_head: Build) -> None:
    recipe = TinyHead("roberta", num_labels=3, labels=("contradiction", "neutral", "entailment"))
    directory = tiny_head(recipe)
    served = Served(directory)
    labels, template = ("travel", "cooking", "dancing"), "This text is about {}."
    texts = ["one day I will see the world", "東京は日本の首都です", "word " * 200]
    with quiet():
        pipeline = transformers_pipeline("zero-shot-classification", directory)
        expected = [pipeline(text, labels, hypothesis_template=template, multi_label=multi_label) for text in texts]
    options = ClassifyOptions(labels=labels, hypothesis_template=template, multi_label=multi_label)
    finished: Labels = served.together(texts, options)
    for ranked, row in zip(finished.ranked, expected, strict=True):
        assert [label for label, _ in ranked] == row["labels"]
        np.testing.assert_allclose([score for _, score in ranked], row["scores"], atol=1e-4)


def transformers_pipeline(task: str, directory: Path) -> Any:
    import transformers

    return transformers.pipeline(task, model=str(directory), tokenizer=str(directory), device="cpu")


@pytest.mark.parametrize("runtime", ["openvino", "torch"])
@pytest.mark.parametrize("name", SPARSE_ENCODERS)
def test_a_sparse_encoder_equals_the_reference(name: str, runtime: str, tiny_head: Build, parity: Parity) -> None:
    """C33: the same alone and in a batch, indices ascending, no zero."""
    directory = tiny_head(SPARSE_ENCODERS[name])
    served, judge = Served(directory, runtime), load_sparse_encoder(directory)
    assert served.spec.outputs == ("sparse",)
    expected = sparse_weights(judge, NASTY_TEXTS)
    options = EmbedOptions(outputs=("sparse",))
    together = whole(served.together(NASTY_TEXTS, options), expected.shape)
    alone = np.concatenate([whole(one, (1, expected.shape[1])) for one in served.alone(NASTY_TEXTS, options)])
    parity.check(SPARSE_ENCODERS[name].architecture, "sparse", runtime, expected, together, alone)


def test_sparse_vectors_are_pruned_as_the_reference_prunes(tiny_head: Build) -> None:
    directory = tiny_head(SPARSE_ENCODERS["distilbert"])
    served, judge = Served(directory), load_sparse_encoder(directory)
    texts = NASTY_TEXTS[:12]
    expected = sparse_weights(judge, texts, max_active_dims=7)
    pruned: SparseVectors = served.together(texts, EmbedOptions(outputs=("sparse",), top_k=7))
    assert pruned.lengths.tolist() == [7] * len(texts)
    np.testing.assert_allclose(whole(pruned, expected.shape), expected, atol=1e-4)
    full = whole(served.together(texts, EmbedOptions(outputs=("sparse",))), expected.shape)
    above = served.together(texts, EmbedOptions(outputs=("sparse",), threshold=0.8))
    np.testing.assert_array_equal(whole(above, expected.shape), np.where(full > np.float32(0.8), full, 0))


def whole(vectors: SparseVectors, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """The rows written out, and checked on the way."""
    rows = np.zeros(shape, np.float32)
    ends = np.cumsum(vectors.lengths)
    assert len(vectors.lengths) == shape[0]
    assert ends[-1] == len(vectors.indices) == len(vectors.values)
    for row, (end, length) in enumerate(zip(ends, vectors.lengths, strict=True)):
        indices, values = vectors.indices[end - length : end], vectors.values[end - length : end]
        assert (np.diff(indices) > 0).all()
        assert (values > 0).all()
        rows[row, indices] = values
    return rows
