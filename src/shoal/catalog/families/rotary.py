"""Encoders with rotary positions: ModernBERT, NomicBERT, GTE."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any

from shoal.catalog.configs import Family
from shoal.catalog.families.bert import ACTIVATIONS, BERT_ALLOWED, BERT_DEFAULTS
from shoal.catalog.files import refusal
from shoal.catalog.layouts import FULL, SLIDING, alternating_layers, one_rope, rope_per_layer_type, whole_number

__all__ = ["FAMILIES"]


def _modernbert(file: str, config: dict[str, Any]) -> dict[str, Any]:
    """Every n-th layer is global, from the first on; each of the two kinds has its own theta."""
    every = whole_number(file, config, "global_attn_every_n_layers", 3)
    config.pop("global_attn_every_n_layers", None)
    alternating_layers(file, config, 22, lambda i: SLIDING if i % every else FULL)
    rope_per_layer_type(file, config, {FULL: ("global_rope_theta", 160_000.0), SLIDING: ("local_rope_theta", 10_000.0)})
    return config


def _gated(file: str, config: dict[str, Any], *, theta: float) -> dict[str, Any]:
    """One matrix holds query, key and value, so heads share the width evenly."""
    one_rope(file, config, theta)
    size = config.pop("head_dim", None)
    heads, hidden = (whole_number(file, config, *pair) for pair in (("num_attention_heads", 12), ("hidden_size", 768)))
    if size not in (None, hidden // heads):
        raise refusal(
            file, "head_dim", f"is {size!r}; it must be {hidden // heads}, hidden_size / num_attention_heads."
        )
    return config


_GATED_DEFAULTS: Mapping[str, Any] = types.MappingProxyType(
    {
        **{key: value for key, value in BERT_DEFAULTS.items() if key not in (*BERT_ALLOWED, "pad_token_id")},
        "hidden_act": "gelu",
        "rope_parameters": {},
    }
)

FAMILIES: tuple[Family, ...] = (
    Family(
        name="modernbert",
        model_types={"modernbert": "TokenizersBackend"},
        defaults={
            "vocab_size": 50368,
            "hidden_size": 768,
            "num_hidden_layers": 22,
            "num_attention_heads": 12,
            "intermediate_size": 1152,
            "hidden_activation": "gelu",
            "max_position_embeddings": 8192,
            "norm_eps": 1e-5,
            "norm_bias": False,
            "attention_bias": False,
            "mlp_bias": False,
            "local_attention": 128,
            "layer_types": [],
            "rope_parameters": {},
        },
        allowed={"hidden_activation": ACTIVATIONS},
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "model."),
        translate=_modernbert,
        embeddings="embeddings.tok_embeddings",
        fixes_tokenizer=True,
        harmless=frozenset(
            (
                "pad_token_id",
                "initializer_cutoff_factor",
                "embedding_dropout",
                "mlp_dropout",
                "decoder_bias",
                "classifier_bias",
                "classifier_activation",
                "classifier_pooling",
                "deterministic_flash_attn",
                "sparse_prediction",
                "sparse_pred_ignore_index",
                "reference_compile",
                "repad_logits_with_grad",
            )
        ),
    ),
    Family(
        name="nomic_bert",
        model_types={"nomic_bert": "BertTokenizer"},
        defaults={**_GATED_DEFAULTS, "vocab_size": 30528, "hidden_act": "silu", "max_position_embeddings": 2048},
        allowed={"hidden_act": ACTIVATIONS},
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "nomic_bert.", "bert."),
        translate=functools.partial(_gated, theta=1_000.0),
        harmless=frozenset(("pad_token_id",)),
    ),
    Family(
        name="gte",
        model_types={"gte": "XLMRobertaTokenizer"},
        defaults={
            **_GATED_DEFAULTS,
            "vocab_size": 250048,
            "max_position_embeddings": 8192,
            "type_vocab_size": 1,
        },
        allowed={"hidden_act": ACTIVATIONS},
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "new.", "gte."),
        translate=functools.partial(_gated, theta=160_000.0),
        harmless=frozenset(("pad_token_id",)),
    ),
)
