"""Encoders whose attention weighs distances: T5's encoder, DeBERTa v2 and v3."""

from __future__ import annotations

from typing import Any

from shoal.catalog.configs import Family
from shoal.catalog.families.bert import ACTIVATIONS
from shoal.catalog.files import refusal
from shoal.catalog.layouts import whole_number

__all__ = ["FAMILIES"]


def _t5(file: str, config: dict[str, Any]) -> dict[str, Any]:
    """What follows from `feed_forward_proj` is stored beside it, and transformers works it out again."""
    for key in ("dense_act_fn", "is_gated_act"):
        config.pop(key, None)
    return config


def _deberta(file: str, config: dict[str, Any]) -> dict[str, Any]:
    heads = whole_number(file, config, "num_attention_heads", 24)
    hidden = whole_number(file, config, "hidden_size", 1536)
    kinds = config.get("pos_att_type") or []
    kinds = [kind.strip() for kind in kinds.lower().split("|")] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or any(kind not in ("c2p", "p2c") for kind in kinds):
        raise refusal(file, "pos_att_type", f"is {config['pos_att_type']!r}; understood: c2p, p2c.")
    norms = str(config.get("norm_rel_ebd") or "none").lower().split("|")
    if any(norm.strip() not in ("none", "layer_norm") for norm in norms):
        raise refusal(file, "norm_rel_ebd", f"is {config['norm_rel_ebd']!r}; understood: none, layer_norm.")
    if (config.get("max_relative_positions") or -1) < 1:
        config["max_relative_positions"] = whole_number(file, config, "max_position_embeddings", 512)
    for key, default in (("embedding_size", hidden), ("attention_head_size", max(1, hidden // heads))):
        config[key] = whole_number(file, config, key, default)
    return {**config, "pos_att_type": kinds, "norm_rel_ebd": [norm.strip() for norm in norms]}


FAMILIES: tuple[Family, ...] = (
    Family(
        name="t5",
        model_types={"t5": "T5Tokenizer", "mt5": "T5Tokenizer"},
        defaults={
            "vocab_size": 32128,
            "d_model": 512,
            "d_kv": 64,
            "d_ff": 2048,
            "num_layers": 6,
            "num_heads": 8,
            "relative_attention_num_buckets": 32,
            "relative_attention_max_distance": 128,
            "layer_norm_epsilon": 1e-6,
            "feed_forward_proj": "relu",
        },
        allowed={
            "feed_forward_proj": (*ACTIVATIONS, *(f"gated-{name}" for name in ACTIVATIONS)),
            "is_encoder_decoder": (True, False),
        },
        hidden_size_key="d_model",
        num_heads_key="",
        prefixes=("",),
        translate=_t5,
        embeddings="shared",
        harmless=frozenset(
            (
                "pad_token_id",
                "num_decoder_layers",
                "dropout_rate",
                "initializer_factor",
                "decoder_start_token_id",
                "n_positions",
                "scale_decoder_outputs",
                "is_decoder",
            )
        ),
    ),
    Family(
        name="deberta-v2",
        model_types={"deberta-v2": "DebertaV2Tokenizer"},
        defaults={
            "vocab_size": 128100,
            "hidden_size": 1536,
            "num_hidden_layers": 24,
            "num_attention_heads": 24,
            "attention_head_size": 64,
            "intermediate_size": 6144,
            "hidden_act": "gelu",
            "max_position_embeddings": 512,
            "type_vocab_size": 0,
            "layer_norm_eps": 1e-7,
            "relative_attention": False,
            "max_relative_positions": 512,
            "position_buckets": -1,
            "position_biased_input": True,
            "pos_att_type": [],
            "share_att_key": False,
            "norm_rel_ebd": [],
            "embedding_size": 1536,
            "conv_kernel_size": 0,
            "conv_act": "tanh",
            "conv_groups": 1,
        },
        allowed={
            "hidden_act": ACTIVATIONS,
            "conv_act": ACTIVATIONS,
            "conv_groups": (1,),
            "conv_kernel_size": (0, 1, 3, 5),
        },
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "deberta."),
        translate=_deberta,
        embedding_size_key="embedding_size",
        harmless=frozenset(
            ("pad_token_id", "pooler_dropout", "pooler_hidden_act", "pooler_hidden_size", "legacy", "z_steps")
        ),
    ),
)
