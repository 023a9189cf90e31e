"""The encoder families: one row each. A new family of a known kind is a new row here and a graph in the runtimes.

A row says which keys of config.json matter, what they default to in transformers, which values are understood, and
which keys change nothing at inference. It knows no graph and no tokenizer.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import msgspec

from shoal.catalog.files import ModelFiles, refusal

__all__ = ["FAMILIES", "Family", "complete_config", "family_of"]


class Family(msgspec.Struct, frozen=True):
    """One row.

    Attributes:
        name: what `ModelSpec.family` says.
        model_types: values of config.json's `model_type` that this row serves, with the tokenizer class that
            transformers takes for each if tokenizer_config.json names none.
        defaults: keys that change the vectors, and their defaults.
        allowed: what such a key may be, where not everything is understood.
        hidden_size_key, num_heads_key: the keys that hold the width and the number of attention heads.
        prefixes: what may stand before the encoder's own tensor names, the bare form first.
        pads_positions: position numbers start behind `pad_token_id`, as in RoBERTa, so that the position table is
            longer than the longest text by pad_token_id + 1.
    """

    name: str
    model_types: Mapping[str, str]
    defaults: Mapping[str, Any]
    allowed: Mapping[str, tuple[Any, ...]]
    hidden_size_key: str
    num_heads_key: str
    prefixes: tuple[str, ...]
    pads_positions: bool = False

    def max_positions(self, config: Mapping[str, Any]) -> int:
        """The longest text, in tokens, that the position table holds."""
        positions = int(config["max_position_embeddings"])
        return positions - int(config["pad_token_id"]) - 1 if self.pads_positions else positions


_ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh")

_BERT_DEFAULTS: Mapping[str, Any] = types.MappingProxyType(
    {
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    }
)
_BERT_ALLOWED: Mapping[str, tuple[Any, ...]] = types.MappingProxyType(
    {
        "hidden_act": _ACTIVATIONS,
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    }
)

FAMILIES: tuple[Family, ...] = (
    Family(
        name="bert",
        model_types={"bert": "BertTokenizer"},
        defaults=_BERT_DEFAULTS,
        allowed=_BERT_ALLOWED,
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "bert."),
    ),
    Family(
        name="roberta",
        model_types={"roberta": "RobertaTokenizer", "xlm-roberta": "XLMRobertaTokenizer"},
        defaults={**_BERT_DEFAULTS, "pad_token_id": 1},
        allowed=_BERT_ALLOWED,
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "roberta."),
        pads_positions=True,
    ),
    Family(
        name="distilbert",
        model_types={"distilbert": "BertTokenizer"},
        defaults={
            "vocab_size": 30522,
            "dim": 768,
            "n_layers": 6,
            "n_heads": 12,
            "hidden_dim": 3072,
            "activation": "gelu",
            "max_position_embeddings": 512,
            "pad_token_id": 0,
            # The table is stored with the weights either way.
            "sinusoidal_pos_embds": False,
        },
        allowed={"activation": _ACTIVATIONS},
        hidden_size_key="dim",
        num_heads_key="n_heads",
        prefixes=("", "distilbert."),
    ),
    Family(
        name="mpnet",
        model_types={"mpnet": "MPNetTokenizer"},
        defaults={
            "vocab_size": 30527,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "hidden_act": "gelu",
            "max_position_embeddings": 512,
            "layer_norm_eps": 1e-12,
            "relative_attention_num_buckets": 32,
            "pad_token_id": 1,
        },
        # transformers numbers MPNet's positions from 2 whatever pad_token_id says.
        allowed={"hidden_act": _ACTIVATIONS, "pad_token_id": (1,)},
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "mpnet."),
        pads_positions=True,
    ),
)

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


def family_of(file: str, config: Mapping[str, Any]) -> Family:
    """The row for a config.json.

    Raises:
        ModelRefused: its model_type has none.
    """
    model_type = config.get("model_type")
    for family in FAMILIES:
        if model_type in family.model_types:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.model_types)
    raise refusal(file, "model_type", f"is {model_type!r}; known are {known}.")


def complete_config(files: ModelFiles, file: str, config: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """The keys that matter, checked one by one, with the family's defaults filled in.

    Raises:
        ModelRefused: a key or a value is not understood.
    """
    if "auto_map" in config:
        raise refusal(file, "auto_map", "asks for code from the model's repository, which is never run.")
    files.refuse_unknown(file, dict(config), frozenset(family.defaults) | frozenset(_NEUTRAL) | _HARMLESS)
    complete = {key: default if config.get(key) is None else config[key] for key, default in family.defaults.items()}
    for key, value in complete.items():
        if not _is_like(value, family.defaults[key], at_least=0 if key == "pad_token_id" else 1):
            raise refusal(file, key, f"is {value!r}; it must be like {family.defaults[key]!r}.")
    neutral = {key: config[key] for key in _NEUTRAL if config.get(key) is not None}
    for key, value in {**neutral, **complete}.items():
        allowed = family.allowed.get(key) or _NEUTRAL.get(key)
        if allowed is not None and value not in allowed:
            raise refusal(file, key, f"is {value!r}; understood: {', '.join(map(repr, allowed))}.")
    if complete[family.hidden_size_key] % complete[family.num_heads_key]:
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
