"""Decoders that serve as encoders: Llama, Mistral, Qwen2, Qwen3, Gemma 3."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from shoal.catalog.configs import Family
from shoal.catalog.families.bert import ACTIVATIONS
from shoal.catalog.files import refusal
from shoal.catalog.layouts import (
    FULL,
    SLIDING,
    alternating_layers,
    one_rope,
    require_heads,
    rope_per_layer_type,
    whole_number,
)

__all__ = ["FAMILIES"]


def _llama(file: str, config: dict[str, Any]) -> dict[str, Any]:
    require_heads(file, config, hidden=4096, heads=32, key_heads=0)
    one_rope(file, config)
    return config


def _mistral(file: str, config: dict[str, Any]) -> dict[str, Any]:
    """`sliding_window` null means that no layer has one."""
    require_heads(file, config, hidden=4096, heads=32, key_heads=8)
    one_rope(file, config)
    if "layer_types" in config:
        raise refusal(file, "layer_types", "is not understood here: transformers ignores it for this model_type.")
    kind = FULL if config.get("sliding_window", 0) is None else SLIDING
    alternating_layers(file, config, 32, lambda i: kind)
    return config


def _qwen2(file: str, config: dict[str, Any]) -> dict[str, Any]:
    require_heads(file, config, hidden=4096, heads=32, key_heads=32)
    return _qwen(file, config)


def _qwen3(file: str, config: dict[str, Any]) -> dict[str, Any]:
    require_heads(file, config, hidden=4096, heads=32, key_heads=32, head_dim=128)
    return _qwen(file, config)


def _qwen(file: str, config: dict[str, Any]) -> dict[str, Any]:
    """Layers from `max_window_layers` on have a window, if `use_sliding_window` says so."""
    one_rope(file, config)
    has_window = bool(config.pop("use_sliding_window", False)) and config.get("sliding_window", 0) is not None
    first = config.pop("max_window_layers", 28)
    if type(first) is not int:
        raise refusal(file, "max_window_layers", f"is {first!r}; it must be a whole number.")
    alternating_layers(file, config, 32, lambda i: SLIDING if has_window and i >= first else FULL)
    if SLIDING in config["layer_types"] and not has_window:
        raise refusal(file, "layer_types", f"names {SLIDING}, but use_sliding_window is false.")
    return config


def _gemma3(file: str, config: dict[str, Any]) -> dict[str, Any]:
    """Every n-th layer is global, the n-th first; each of the two kinds has its own theta."""
    require_heads(file, config, hidden=2304, heads=8, key_heads=4, head_dim=256)
    every = whole_number(file, config, "sliding_window_pattern", 6)
    config.pop("sliding_window_pattern", None)
    alternating_layers(file, config, 26, lambda i: SLIDING if (i + 1) % every else FULL)
    rope_per_layer_type(file, config, {FULL: ("rope_theta", 1_000_000.0), SLIDING: ("rope_local_base_freq", 10_000.0)})
    if config.pop("attn_logit_softcapping", None) is not None:
        raise refusal(file, "attn_logit_softcapping", "is set, which is not understood.")
    return config


_DECODER_DEFAULTS: Mapping[str, Any] = types.MappingProxyType(
    {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "intermediate_size": 11008,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {},
        "is_causal": True,
    }
)
_QWEN_DEFAULTS: Mapping[str, Any] = types.MappingProxyType(
    {
        **_DECODER_DEFAULTS,
        "vocab_size": 151936,
        "intermediate_size": 22016,
        "max_position_embeddings": 32768,
        "sliding_window": 4096,
        "layer_types": [],
    }
)


def _decoder(name: str, tokenizer: str, defaults: Mapping[str, Any], **fields: Any) -> Family:
    """A decoder that is used as an encoder."""
    return Family(
        name=name,
        model_types={name: tokenizer},
        defaults=defaults,
        allowed={"hidden_act": ACTIVATIONS, "hidden_activation": ACTIVATIONS},
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "model."),
        embeddings="embed_tokens",
        harmless=frozenset(("pad_token_id", "pretraining_tp", "final_logit_softcapping", "_sliding_window_pattern")),
        **fields,
    )


FAMILIES: tuple[Family, ...] = (
    _decoder(
        "llama",
        "TokenizersBackend",
        {**_DECODER_DEFAULTS, "attention_bias": False, "mlp_bias": False},
        translate=_llama,
    ),
    _decoder(
        "mistral",
        "TokenizersBackend",
        {
            **_DECODER_DEFAULTS,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "max_position_embeddings": 131072,
            "sliding_window": 4096,
            "layer_types": [],
        },
        translate=_mistral,
        fixes_tokenizer=True,
    ),
    _decoder("qwen2", "Qwen2Tokenizer", _QWEN_DEFAULTS, translate=_qwen2, fixes_tokenizer=True),
    _decoder("qwen3", "Qwen2Tokenizer", {**_QWEN_DEFAULTS, "attention_bias": False}, translate=_qwen3),
    _decoder(
        "gemma3_text",
        "GemmaTokenizer",
        {
            "vocab_size": 262208,
            "hidden_size": 2304,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "intermediate_size": 9216,
            "hidden_activation": "gelu_pytorch_tanh",
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-6,
            "attention_bias": False,
            "query_pre_attn_scalar": 256,
            "sliding_window": 4096,
            "use_bidirectional_attention": False,
            "layer_types": [],
            "rope_parameters": {},
        },
        translate=_gemma3,
    ),
)
