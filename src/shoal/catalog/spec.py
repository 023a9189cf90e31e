"""A model's facts, once its files are understood. Plain data: it crosses to the runtime host as MessagePack."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from shoal.types import ModelCard, Operation

__all__ = ["Dense", "ModelSpec", "Module", "Normalize", "Pooling", "PoolingMode", "Tokenization"]

PoolingMode = Literal["cls", "mean", "max", "weighted_mean", "last_token", "mean_sqrt_len"]


class Pooling(msgspec.Struct, frozen=True, tag="pooling"):
    """Token states to one vector; several modes are concatenated in this order.

    Attributes:
        include_prompt: whether the prompt's tokens count.
    """

    modes: tuple[PoolingMode, ...]
    include_prompt: bool = True


class Dense(msgspec.Struct, frozen=True, tag="dense"):
    """y = activation(x W^T + b); the weights are `linear.weight` and `linear.bias` in `weights_file`."""

    weights_file: str
    in_features: int
    out_features: int
    activation: Literal["identity", "tanh", "relu", "gelu", "sigmoid"]
    has_bias: bool = True


class Normalize(msgspec.Struct, frozen=True, tag="normalize"):
    """L2, as torch.nn.functional.normalize does it: x / max(|x|, 1e-12)."""


Module = Pooling | Dense | Normalize


class Tokenization(msgspec.Struct, frozen=True):
    """How texts become ids: everything that the model's own tokenizer would do, and nothing else.

    Attributes:
        file: absolute path of tokenizer.json.
        max_length: tokens, special tokens included.
        lower: sentence-transformers' own `do_lower_case`, before the tokenizer.
        truncation_side: the tokenizer's own default.
        parts: sections of tokenizer.json to put in the place of its own, because the reference builds them from
            tokenizer_config.json instead (`normalizer`, `pre_tokenizer`, `post_processor`, `added_tokens`) or because
            they are not wanted (`truncation`, `padding`).
    """

    file: str
    max_length: int
    lower: bool = False
    truncation_side: Literal["left", "right"] = "right"
    parts: dict[str, Any] = {}


class ModelSpec(msgspec.Struct, frozen=True):
    """Everything needed to serve a model, read from its directory.

    Attributes:
        id: name in requests.
        directory: absolute path of the files.
        family: row of the family table (`bert`, `roberta`, ...): names the graph.
        config: the encoder's config.json, checked key by key against the family's row, with its defaults filled in.
        weights: absolute paths of the safetensors files.
        weights_prefix: what stands before the encoder's own tensor names (`bert.`), "" for none.
        modules: what follows the encoder, in order; the first is a Pooling.
        dimensions: numbers a vector after all modules.
        is_normalized: whether the last module is Normalize.
    """

    id: str
    directory: str
    family: str
    config: dict[str, Any]
    weights: tuple[str, ...]
    tokenization: Tokenization
    modules: tuple[Module, ...]
    dimensions: int
    weights_prefix: str = ""
    prompts: dict[str, str] = {}
    default_prompt_name: str | None = None
    matryoshka_dimensions: tuple[int, ...] = ()
    operations: tuple[Operation, ...] = ("embed",)
    aliases: tuple[str, ...] = ()
    revision: str = ""
    source: str = ""
    licence: str = ""
    vocabulary_size: int = 0

    @property
    def is_normalized(self) -> bool:
        return bool(self.modules) and isinstance(self.modules[-1], Normalize)

    @property
    def card(self) -> ModelCard:
        """What a worker announces about this model."""
        return ModelCard(
            id=self.id,
            operations=self.operations,
            dimensions=self.dimensions,
            max_length=self.tokenization.max_length,
            aliases=self.aliases,
            matryoshka_dimensions=self.matryoshka_dimensions,
            prompts=self.prompts,
            revision=self.revision,
            source=self.source,
            licence=self.licence,
            vocabulary_size=self.vocabulary_size,
        )
