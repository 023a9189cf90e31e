"""Tiny models that rank, classify, tag or embed sparsely: random weights, saved as their reference library saves them.

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

__all__ = [
    "CHAT_TEMPLATE",
    "TinyHead",
    "cross_scores",
    "load_cross_encoder",
    "load_sparse_encoder",
    "save_name_finder",
    "save_tiny_head",
    "sparse_weights",
]


@dataclasses.dataclass(frozen=True)
class TinyHead:
    """What to build.

    Attributes:
        kind: `bare` is what transformers saves of a classifier, `cross` the same saved by a CrossEncoder, `tags` a
            classifier of tokens, `judge` a decoder that ranks, saved by a CrossEncoder.
        labels: names of the labels, () = transformers' own.
        activation: torch.nn class that a CrossEncoder is saved with.
        splade: options of SpladePooling.
        config: further (key, value) pairs of the config.
    """

    architecture: Architecture = "bert"
    kind: Literal["bare", "cross", "sparse", "tags", "judge"] = "bare"
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
        if recipe.kind == "judge":
            tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
            tokenizer.add_tokens(["yes", "no"])
            tokenizer.chat_template = CHAT_TEMPLATE
        tokenizer.save_pretrained(bare)
        extra = dict(recipe.config)
        if recipe.kind in ("bare", "cross", "tags"):
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
        model = _AUTO.get(recipe.kind, transformers.AutoModelForSequenceClassification).from_config(config)
        randomise(model, recipe.seed)
        model.save_pretrained(bare)
        if recipe.kind in ("bare", "tags"):
            return bare
        if recipe.kind in ("cross", "judge"):
            activation = getattr(torch.nn, recipe.activation)() if recipe.activation else None
            whole: Any = CrossEncoder(str(bare), device="cpu", activation_fn=activation)
        else:
            transformer = SparseTransformer(str(bare), transformer_task="fill-mask")
            whole = SparseEncoder(modules=[transformer, SpladePooling(**dict(recipe.splade))], device="cpu")
        whole.save_pretrained(str(directory / "whole"))
    return directory / "whole"


_AUTO: dict[str, Any] = {
    "sparse": transformers.AutoModelForMaskedLM,
    "tags": transformers.AutoModelForTokenClassification,
    "judge": transformers.AutoModelForCausalLM,
}

CHAT_TEMPLATE = """\
{%- set told = messages | selectattr("role", "eq", "system") | map(attribute="content") | first | default("Find.") -%}
{%- set query = messages | selectattr("role", "eq", "query") | map(attribute="content") | first -%}
{%- set document = messages | selectattr("role", "eq", "document") | map(attribute="content") | first -%}
<|im_start|>system
Say "yes" or "no".<|im_end|>
<|im_start|>user
<Do>: {{ told }}
<Query>: {{ query }}
<Text>: {{ document }}<|im_end|>
<|im_start|>assistant

"""
"""In the manner of Qwen3-Reranker's."""


def save_name_finder(directory: Path, max_length: int = 64) -> Path:
    """A BERT that knows `ada` as B-PER and `lovelace` as I-PER, whatever stands around them; returns the directory."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ada", "lovelace", "word", "met", "e", ".", ","]
    labels = dict(enumerate(("O", "B-PER", "I-PER", "B-LOC", "I-LOC")))
    with quiet():
        tokenizer = transformers.BertTokenizer(
            vocab={word: place for place, word in enumerate(words)}, model_max_length=max_length
        )
        tokenizer.save_pretrained(directory)
        config = transformers.BertConfig(
            vocab_size=len(words),
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=4,
            intermediate_size=32,
            max_position_embeddings=max_length,
            id2label=labels,
            label2id={label: place for place, label in labels.items()},
        )
        model = transformers.BertForTokenClassification(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.fill_(1 if "LayerNorm.weight" in name else 0)
            table = model.bert.embeddings.word_embeddings.weight
            table[:, :2] = torch.tensor([1.0, -1.0])
            for label, word in ((1, "ada"), (2, "lovelace")):
                table[words.index(word)] = 0
                table[words.index(word), 2 * label : 2 * label + 2] = torch.tensor([1.0, -1.0])
                model.classifier.weight[label, 2 * label] = 4
            model.classifier.weight[0, 0] = 4
        model.save_pretrained(directory)
    return directory


def load_cross_encoder(directory: Path) -> CrossEncoder:
    """The reference for `bare`, `cross` and `judge`."""
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
