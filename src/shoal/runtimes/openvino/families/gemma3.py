"""Gemma 3, text only (EmbeddingGemma): scaled words, norms around each block, windows on most layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from openvino import opset15 as ops

from shoal.runtimes.openvino import layers
from shoal.runtimes.openvino.grouped import Grouped, attend, gated
from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node, constant
from shoal.runtimes.openvino.rope import Rotation, rotation
from shoal.runtimes.openvino.weights import Weights

__all__ = ["encode"]

Config = dict[str, Any]


def encode(config: Config, weights: Weights, inputs: Inputs) -> Node:
    """Token states. With `use_bidirectional_attention` tokens see both ways, within a window half of it each way."""
    hidden, window = config["hidden_size"], config["sliding_window"]
    is_causal = not config["use_bidirectional_attention"]
    reach = {"full_attention": None, "sliding_attention": window - 1 if is_causal else window // 2}
    kinds = sorted(set(config["layer_types"]))
    masks = {kind: inputs.mask(is_causal=is_causal, reach=reach[kind]) for kind in kinds}
    turns = {kind: rotation(config["rope_parameters"][kind], config["head_dim"], inputs) for kind in kinds}
    x = layers.embedding(inputs.token_ids, weights, "embed_tokens", config["vocab_size"], hidden)
    x = ops.multiply(x, constant(hidden**0.5, np.float32))
    for i, kind in enumerate(config["layer_types"]):
        x = _layer(config, weights.under(f"layers.{i}."), x, masks[kind], turns[kind])
    return _norm(config, x, weights, "norm")


def _norm(config: Config, x: Node, weights: Weights, name: str) -> Node:
    return layers.rms_norm(x, weights, name, config["hidden_size"], config["rms_norm_eps"], offset=1.0)


def _layer(config: Config, weights: Weights, x: Node, mask: Node, turns: Rotation) -> Node:
    hidden, inner, act = config["hidden_size"], config["intermediate_size"], config["hidden_activation"]
    y = _norm(config, x, weights, "input_layernorm")
    y = attend(y, weights.under("self_attn."), mask, turns, _attention(config))
    x = ops.add(x, _norm(config, y, weights, "post_attention_layernorm"))
    y = _norm(config, x, weights, "pre_feedforward_layernorm")
    y = gated(y, weights.under("mlp."), hidden, inner, act, has_bias=False, key="hidden_activation")
    return ops.add(x, _norm(config, y, weights, "post_feedforward_layernorm"))


def _attention(config: Config) -> Grouped:
    has_bias = config["attention_bias"]
    return Grouped(
        hidden=config["hidden_size"],
        num_heads=config["num_attention_heads"],
        num_key_heads=config["num_key_value_heads"],
        head_size=config["head_dim"],
        scale=config["query_pre_attn_scalar"] ** -0.5,
        query_bias=has_bias,
        output_bias=has_bias,
        norm_epsilon=float(config["rms_norm_eps"]),
        norm_offset=1.0,
    )
