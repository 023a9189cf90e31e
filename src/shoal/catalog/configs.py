"""config.json, key by key: what a row of the family table says about it, and the check against the row.

Knows keys and values, not which families there are, no graph and no tokenizer.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shoal.catalog.files import ModelFiles, refusal

__all__ = ["Family", "complete_config"]


def _as_it_is(file: str, config: dict[str, Any]) -> dict[str, Any]:
    return config


class Family(msgspec.Struct, frozen=True):
    """One row.

    Attributes:
        name: what `ModelSpec.family` says.
        model_types: values of config.json's `model_type` that this row serves, with the tokenizer class that
            transformers takes for each if tokenizer_config.json names none.
        defaults: keys that change the vectors, and their defaults.
        allowed: what such a key may be, where not everything is understood.
        hidden_size_key, num_heads_key: the keys that hold the width and the number of attention heads; the second is ""
            where the one need not be a multiple of the other.
        prefixes: what may stand before the encoder's own tensor names, the bare form first.
        pads_positions: position numbers start behind `pad_token_id`, as in RoBERTa, so that the position table is
            longer than the longest text by pad_token_id + 1.
        harmless: further keys without effect on the last hidden states.
        translate: (file, config) -> config in the keys of this row, where older files say the same with others; what
            it does not know it leaves, to be refused.
        embeddings: the table of word embeddings: its tensor, and the key of its width if that is not the hidden size.
        fixes_tokenizer: transformers takes the tokenizer class of `model_types` whatever the files say.
    """

    name: str
    model_types: Mapping[str, str]
    defaults: Mapping[str, Any]
    allowed: Mapping[str, tuple[Any, ...]]
    hidden_size_key: str
    num_heads_key: str
    prefixes: tuple[str, ...]
    pads_positions: bool = False
    harmless: frozenset[str] = frozenset()
    translate: Callable[[str, dict[str, Any]], dict[str, Any]] = _as_it_is
    embeddings: str = "embeddings.word_embeddings"
    embedding_size_key: str = ""
    fixes_tokenizer: bool = False

    def max_positions(self, config: Mapping[str, Any]) -> int:
        """The longest text, in tokens, that the encoder has positions for."""
        positions = int(config.get("max_position_embeddings", _UNLIMITED))
        return positions - int(config["pad_token_id"]) - 1 if self.pads_positions else positions


_UNLIMITED = 32768
"""Tokens that a text may have if nothing in the model says: longer ones are cut, and flagged."""

_FROM_ZERO = ("pad_token_id", "type_vocab_size")

_HARMLESS = frozenset(
    (
        "model_type",
        "_name_or_path",
        "name_or_path",
        "architectures",
        "transformers_version",
        "torch_dtype",
        "dtype",
        "initializer_range",
        "_attn_implementation_autoset",
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "dropout",
        "attention_dropout",
        "qa_dropout",
        "seq_classif_dropout",
        "classifier_dropout",
        "gradient_checkpointing",
        "use_cache",
        "tie_word_embeddings",
        "tie_weights_",
        "bos_token_id",
        "eos_token_id",
        "cls_token_id",
        "sep_token_id",
        "mask_token_id",
        "unk_token_id",
        "tokenizer_class",
        "id2label",
        "label2id",
        "num_labels",
        "problem_type",
        "finetuning_task",
        "task_specific_params",
        "directionality",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
        "output_past",
        "output_attentions",
        "output_hidden_states",
        "return_dict",
        "xla_device",
        "model_name",
        "sentence_transformers",
        "sbert_ce_default_activation_function",
    )
)
"""Keys without effect on the last hidden states at inference: training, other heads, bookkeeping.

torch_dtype / dtype say how the weights were stored; precision is the runtime's choice.
"""

_NEUTRAL: Mapping[str, tuple[Any, ...]] = types.MappingProxyType(
    {
        "is_encoder_decoder": (False,),
        "chunk_size_feed_forward": (0,),
        "pruned_heads": ({},),
        "torchscript": (False,),
        "position_embedding_type": ("absolute",),
    }
)
"""Keys that change nothing as long as they hold these values."""


def complete_config(files: ModelFiles, file: str, config: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """The keys that matter, checked one by one, with the family's defaults filled in.

    Raises:
        ModelRefused: a key or a value is not understood.
    """
    config = family.translate(file, dict(config))
    known = frozenset(family.defaults) | frozenset(_NEUTRAL) | _HARMLESS | family.harmless
    files.refuse_unknown(file, dict(config), known)
    complete = {key: default if config.get(key) is None else config[key] for key, default in family.defaults.items()}
    for key, value in complete.items():
        if value != family.defaults[key] and not _is_like(
            value, family.defaults[key], at_least=0 if key in _FROM_ZERO else 1
        ):
            raise refusal(file, key, f"is {value!r}; it must be like {family.defaults[key]!r}.")
    neutral = {key: config[key] for key in _NEUTRAL if config.get(key) is not None}
    for key, value in {**neutral, **complete}.items():
        allowed = family.allowed.get(key) or _NEUTRAL.get(key)
        if allowed is not None and value not in allowed:
            raise refusal(file, key, f"is {value!r}; understood: {', '.join(map(repr, allowed))}.")
    if family.num_heads_key and complete[family.hidden_size_key] % complete[family.num_heads_key]:
        raise refusal(file, family.hidden_size_key, f"is not a multiple of {family.num_heads_key}.")
    return complete


def _is_like(value: Any, default: Any, at_least: int) -> bool:
    """Whether a value has its default's type, and a number is large enough."""
    if isinstance(default, bool) or isinstance(value, bool):
        return type(value) is type(default)
    if isinstance(default, int):
        return isinstance(value, int) and value >= at_least
    if isinstance(default, float):
        return isinstance(value, int | float) and value > 0
    return isinstance(value, type(default))
