"""Tiny sentence-transformers models with random weights and real tokenizers, saved by sentence-transformers itself.

They stand in for trained models wherever only agreement with the reference counts: every architecture (see
`tiny_architectures`), every pooling, Dense and Normalize behind it, prompts. Weights are far from their initial values
(no bias is 0, no LayerNorm is 1, and attention is far from uniform), so that a forgotten or swapped tensor shows.
`conftest.py` caches them for a session.

    directory = save_tiny_model(tmp_path / "m", TinyModel("mpnet", pooling="cls", dense=((24, "Tanh"),)))
    reference = load_reference(directory)
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, StaticEmbedding, Transformer

from tiny_architectures import ARCHITECTURES, Architecture, encoder_config, tokenizer_of

__all__ = [
    "ARCHITECTURES",
    "NASTY_TEXTS",
    "Architecture",
    "TinyModel",
    "encode_reference",
    "load_reference",
    "quiet",
    "randomise",
    "save_tiny_model",
]


@dataclasses.dataclass(frozen=True)
class TinyModel:
    """What to build.

    Attributes:
        architecture: model_type of the encoder.
        pooling: a mode as sentence-transformers names it, or several.
        dense: (out_features, torch.nn activation class) of each Dense module.
        normalize: whether a Normalize module comes last.
        include_prompt: pooling's own flag.
        prompts: (name, text) pairs.
        max_length: tokens, special tokens included; position tables are made to fit.
        hidden_size: of the encoder; 4 heads.
        config: further (key, value) pairs for the encoder's config; a tuple in it stands for a list, a tuple of pairs
            for an object.
    """

    architecture: Architecture = "bert"
    pooling: str | tuple[str, ...] = "mean"
    dense: tuple[tuple[int, str], ...] = ()
    normalize: bool = True
    include_prompt: bool = True
    prompts: tuple[tuple[str, str], ...] = ()
    default_prompt_name: str | None = None
    max_length: int = 128
    hidden_size: int = 32
    num_layers: int = 2
    seed: int = 0
    config: tuple[tuple[str, Any], ...] = ()


def save_tiny_model(directory: Path, recipe: TinyModel) -> Path:
    """Build the model and save it as sentence-transformers does; returns the directory."""
    with quiet():
        modules = _static(recipe) if recipe.architecture == "static" else _encoder(directory / "encoder", recipe)
        model = SentenceTransformer(
            modules=[*modules, *_after(recipe)],
            prompts=dict(recipe.prompts),
            default_prompt_name=recipe.default_prompt_name,
            device="cpu",
        )
        target = directory / "model"
        model.save(str(target), create_model_card=False)
    return target


def load_reference(directory: Path | str) -> SentenceTransformer:
    """sentence-transformers on the same files: float32 on CPU."""
    with quiet():
        return SentenceTransformer(str(directory), device="cpu", local_files_only=True).eval()


def encode_reference(model: SentenceTransformer, texts: list[str], **options: Any) -> npt.NDArray[np.float32]:
    """The right vectors: each text encoded alone, so that no padding is involved. float32 [len(texts), dimensions]."""
    with quiet():
        rows = [model.encode([text], show_progress_bar=False, **options)[0] for text in texts]
    return np.stack(rows)


@contextmanager
def quiet() -> Iterator[None]:
    """Reference libraries may warn while they build and load; what is under test may not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _encoder(directory: Path, recipe: TinyModel) -> list[torch.nn.Module]:
    """The first two modules, by way of an encoder saved to the directory."""
    tokenizer = tokenizer_of(recipe.architecture, recipe.max_length)
    tokenizer.save_pretrained(directory)
    config = encoder_config(
        recipe.architecture,
        len(tokenizer),
        hidden_size=recipe.hidden_size,
        num_layers=recipe.num_layers,
        max_length=recipe.max_length,
        extra={key: _thawed(value) for key, value in recipe.config},
    )
    encoder = transformers.AutoModel.from_config(config)
    randomise(encoder, recipe.seed)
    encoder.save_pretrained(directory)
    transformer = Transformer(str(directory), processor_kwargs={"model_max_length": recipe.max_length})
    pooling = Pooling(recipe.hidden_size, pooling_mode=recipe.pooling, include_prompt=recipe.include_prompt)
    return [transformer, pooling]


def _static(recipe: TinyModel) -> list[torch.nn.Module]:
    """A table for BERT's tokenizer, and no pooling."""
    tokenizer = tokenizer_of("bert", recipe.max_length)
    embedding = StaticEmbedding(tokenizer.backend_tokenizer, embedding_dim=recipe.hidden_size)
    randomise(embedding, recipe.seed)
    return [embedding]


def _after(recipe: TinyModel) -> list[torch.nn.Module]:
    modules: list[torch.nn.Module] = []
    width = recipe.hidden_size * (1 if isinstance(recipe.pooling, str) else len(recipe.pooling))
    for position, (out_features, activation) in enumerate(recipe.dense):
        dense = Dense(width, out_features, activation_function=getattr(torch.nn, activation)())
        randomise(dense, recipe.seed + 1 + position)
        modules.append(dense)
        width = out_features
    return [*modules, Normalize()] if recipe.normalize else modules


def _thawed(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    is_object = all(isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str) for entry in value)
    return {key: _thawed(entry) for key, entry in value} if is_object else [_thawed(entry) for entry in value]


@torch.no_grad()
def randomise(module: torch.nn.Module, seed: int) -> None:
    """Weights far from their initial values, norms around 1."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name.lower() and name.endswith("weight"):
            parameter.copy_(1 + 0.2 * noise)
        elif parameter.dim() == 2 and "embed" in name:
            parameter.copy_(0.5 * noise)
        elif parameter.dim() == 2:
            parameter.copy_(noise * 1.5 / parameter.shape[1] ** 0.5)
        else:
            parameter.copy_(0.2 * noise)


NASTY_TEXTS = [
    "",
    " ",
    "  \t ",
    "\n\n\n",
    "cat",
    " cat",
    "cat ",
    "cat\n",
    "Cat",
    "CAT\tcat\r\ncat",
    "a",
    "é",
    "e\u0301 combining, na\u00efve co\u00f6peration \u00c5ngstr\u00f6m \u1e9e \u0130stanbul",
    "zero\u200bwidth, no\u00a0break, soft\u00adhyphen, bom\ufeff, rtl \u202eabc\u202c",
    "control \x00 \x01 \x1f \x7f characters \ufffd",
    "😀 👩‍💻👨‍👩‍👧‍👦 🇩🇪 ❤️ 🏳️‍🌈",
    "東京は日本の首都です。北京是中国的首都",
    "안녕하세요 мир مرحبا שלום ไทย हिन्दी",
    "𝕳𝖊𝖑𝖑𝖔 ﬁne Ⅷ ½ ㎏ ｆｕｌｌ　ｗｉｄｔｈ",
    "[CLS] literal [SEP] and [PAD] and [MASK] and [UNK] tokens[SEP]",
    "<s> literal </s> and <pad> and <mask> and <unk> </s><|endoftext|>",
    " <mask> x<mask>y  [MASK] z",
    "def f(x):\n    if x:\n        return {'a': [1, 2, 3]}  # tabs\t\there\n",
    "https://example.com/a?b=c&d=%20e#f user@example.org C:\\path\\file.txt",
    "1,234,567.89 +49 (0)30 123456 2026-01-02T03:04:05Z",
    "!!!???...,,,;;;:::---___***///\\\\\\|||@@@###$$$%%%^^^&&&",
    "a" * 300,
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "word " * 700,
    "The quick brown fox jumps over the lazy dog. " * 60,
    "東" * 900,
    "x\n" * 400,
]
"""Texts that tokenizers trip over: blanks, controls, scripts, emoji, literal special tokens, far too long."""
