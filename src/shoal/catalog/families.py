"""The encoder families: one row each. A new family of a known kind is a new row here and a graph in the runtimes.

A row says which keys of config.json matter, what they default to in transformers, which values are understood, and
which keys change nothing at inference; see `configs.Family`. It knows no graph and no tokenizer.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any

from shoal.catalog.configs import Family
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

__all__ = ["FAMILIES", "family_of"]

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
        **{key: value for key, value in _BERT_DEFAULTS.items() if key not in (*_BERT_ALLOWED, "pad_token_id")},
        "hidden_act": "gelu",
        "rope_parameters": {},
    }
)


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
        allowed={"hidden_act": _ACTIVATIONS, "hidden_activation": _ACTIVATIONS},
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "model."),
        embeddings="embed_tokens",
        harmless=frozenset(("pad_token_id", "pretraining_tp", "final_logit_softcapping", "_sliding_window_pattern")),
        **fields,
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
        name="electra",
        model_types={"electra": "BertTokenizer"},
        defaults={
            **_BERT_DEFAULTS,
            "embedding_size": 128,
            "hidden_size": 256,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
        },
        allowed=_BERT_ALLOWED,
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "electra."),
        embedding_size_key="embedding_size",
        harmless=frozenset(("summary_type", "summary_use_proj", "summary_activation", "summary_last_dropout")),
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
        allowed={"hidden_activation": _ACTIVATIONS},
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
        allowed={"hidden_act": _ACTIVATIONS},
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
        allowed={"hidden_act": _ACTIVATIONS},
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "new.", "gte."),
        translate=functools.partial(_gated, theta=160_000.0),
        harmless=frozenset(("pad_token_id",)),
    ),
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
            "feed_forward_proj": (*_ACTIVATIONS, *(f"gated-{name}" for name in _ACTIVATIONS)),
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
            "hidden_act": _ACTIVATIONS,
            "conv_act": _ACTIVATIONS,
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
