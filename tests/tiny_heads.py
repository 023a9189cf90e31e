"""Tiny models that rank, classify or embed sparsely: random weights, saved by transformers or sentence-transformers.

directory = save_tiny_head(tmp_path, TinyHead("roberta", "cross", num_labels=2))
scores = cross_scores(load_cross_encoder(directory), query, documents)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
import transformers
from sentence_transformers import CrossEncoder, SparseEncoder
from sentence_transformers.sparse_encoder.modules import SpladePooling
from sentence_transformers.sparse_encoder.modules import Transformer as SparseTransformer

from tiny_architectures import Architecture, encoder_config, tokenizer_of
from tiny_models import quiet, randomise

__all__ = ["TinyHead", "cross_scores", "load_cross_encoder", "load_sparse_encoder", "save_tiny_head", "sparse_weights"]


@dataclasses.dataclass(frozen=True)
class TinyHead:
    """What to build.

    Attributes:
        kind: `bare` is what transformers saves of a classifier, `cross` the same saved by a CrossEncoder.
        labels: names of the labels, () = transformers' own.
        activation: torch.nn class that a CrossEncoder is saved with.
        splade: options of SpladePooling.
        config: further (key, value) pairs of the config.
    """

    architecture: Architecture = "bert"
    kind: Literal["bare", "cross", "sparse"] = "bare"
    num_labels: int = 1
    labels: tuple[str, ...] = ()
    activation: str = ""
    splade: tuple[tuple[str, str], ...] = ()
    config: tuple[tuple[str, Any], ...] = ()
    max_length: int = 64
    seed: int = 3


def save_tiny_head(directory: Path, recipe: TinyHead) -> Path:
    """Build the model and save it; returns the directory."""
    with quiet():
        bare = directory / "bare"
        tokenizer = tokenizer_of(recipe.architecture, recipe.max_length)
        tokenizer.save_pretrained(bare)
        extra = dict(recipe.config)
        if recipe.kind != "sparse":
            extra |= {"num_labels": recipe.num_labels}
        if recipe.labels:
            extra |= {
                "id2label": dict(enumerate(recipe.labels)),
                "label2id": {label: place for place, label in enumerate(recipe.labels)},
            }
        config = encoder_config(
            recipe.architecture,
            len(tokenizer),
            hidden_size=32,
            num_layers=2,
            max_length=recipe.max_length,
            extra=extra,
        )
        auto = (
            transformers.AutoModelForMaskedLM
            if recipe.kind == "sparse"
            else transformers.AutoModelForSequenceClassification
        )
        model = auto.from_config(config)
        randomise(model, recipe.seed)
        model.save_pretrained(bare)
        if recipe.kind == "bare":
            return bare
        if recipe.kind == "cross":
            activation = getattr(torch.nn, recipe.activation)() if recipe.activation else None
            whole: Any = CrossEncoder(str(bare), device="cpu", activation_fn=activation)
        else:
            transformer = SparseTransformer(str(bare), transformer_task="fill-mask")
            whole = SparseEncoder(modules=[transformer, SpladePooling(**dict(recipe.splade))], device="cpu")
        whole.save_pretrained(str(directory / "whole"))
    return directory / "whole"


def load_cross_encoder(directory: Path) -> CrossEncoder:
    """The reference for `bare` and `cross`."""
    with quiet():
        return CrossEncoder(str(directory), device="cpu", local_files_only=True)


def cross_scores(model: CrossEncoder, query: str, documents: Sequence[str], **options: Any) -> npt.NDArray[np.float32]:
    """Each pair scored alone: float32 [len(documents)] or [len(documents), labels]."""
    with quiet():
        rows = [model.predict([(query, text)], show_progress_bar=False, **options)[0] for text in documents]
    return np.stack(rows)


def load_sparse_encoder(directory: Path) -> SparseEncoder:
    """The reference for `sparse`."""
    with quiet():
        return SparseEncoder(str(directory), device="cpu", local_files_only=True)


def sparse_weights(model: SparseEncoder, texts: Sequence[str], **options: Any) -> npt.NDArray[np.float32]:
    """Each text embedded alone: float32 [len(texts), vocabulary]."""
    with quiet():
        rows = [
            model.encode([text], convert_to_sparse_tensor=False, show_progress_bar=False, **options)[0].numpy()
            for text in texts
        ]
    return np.stack(rows)
