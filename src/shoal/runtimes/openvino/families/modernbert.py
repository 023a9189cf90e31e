"""ModernBERT: normalised before each block, rotary positions, most layers look at a window only, gated layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from openvino import opset15 as ops

from shoal.runtimes.openvino import layers
from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node, constant
from shoal.runtimes.openvino.rope import Rotation, rotation
from shoal.runtimes.openvino.weights import Weights

__all__ = ["encode"]


def encode(config: dict[str, Any], weights: Weights, inputs: Inputs) -> Node:
    """Token states."""
    hidden, head_size = config["hidden_size"], config["hidden_size"] // config["num_attention_heads"]
    words = layers.embedding(inputs.token_ids, weights, "embeddings.tok_embeddings", config["vocab_size"], hidden)
    x = _norm(config, words, weights, "embeddings.norm")
    reach = {"full_attention": None, "sliding_attention": config["local_attention"] // 2}
    kinds = sorted(set(config["layer_types"]))
    masks = {kind: inputs.mask(reach=reach[kind]) for kind in kinds}
    sees = {kind: inputs.sees(reach=reach[kind]) for kind in kinds}
    turns = {kind: rotation(config["rope_parameters"][kind], head_size, inputs) for kind in kinds}
    for i, kind in enumerate(config["layer_types"]):
        x = _layer(config, weights.under(f"layers.{i}."), x, masks[kind], sees[kind], turns[kind], is_first=i == 0)
    return _norm(config, x, weights, "final_norm")


def _norm(config: dict[str, Any], x: Node, weights: Weights, name: str) -> Node:
    return layers.layer_norm(x, weights, name, config["hidden_size"], config["norm_eps"], has_bias=config["norm_bias"])


def _layer(
    config: dict[str, Any], weights: Weights, x: Node, mask: Node, sees: Node | None, turns: Rotation, *, is_first: bool
) -> Node:
    # The first layer's input has just been normalised.
    y = x if is_first else _norm(config, x, weights, "attn_norm")
    x = ops.add(x, _attention(config, weights.under("attn."), y, mask, sees, turns))
    return ops.add(x, _gated(config, weights.under("mlp."), _norm(config, x, weights, "mlp_norm")))


def _attention(
    config: dict[str, Any], weights: Weights, x: Node, mask: Node, sees: Node | None, turns: Rotation
) -> Node:
    hidden, num_heads, has_bias = config["hidden_size"], config["num_attention_heads"], config["attention_bias"]
    head_size = hidden // num_heads
    y = layers.linear(x, weights, "Wqkv", 3 * hidden, hidden, has_bias=has_bias)
    parts = ops.split(y, constant(2, np.int64), 3).outputs()
    query, key, value = (layers.heads(part, num_heads, head_size) for part in parts)
    query = ops.multiply(turns.turn(query), constant(head_size**-0.5, np.float32))
    mixed = layers.mix_heads(query, turns.turn(key), value, mask, hidden)
    if sees is not None:
        mixed = ops.multiply(mixed, sees)
    return layers.linear(mixed, weights, "Wo", hidden, hidden, has_bias=has_bias)


def _gated(config: dict[str, Any], weights: Weights, x: Node) -> Node:
    hidden, inner, has_bias = config["hidden_size"], config["intermediate_size"], config["mlp_bias"]
    y = layers.linear(x, weights, "Wi", 2 * inner, hidden, has_bias=has_bias)
    active, gate = ops.split(y, constant(2, np.int64), 2).outputs()
    y = layers.activation(active, config["hidden_activation"], "config.json: hidden_activation")
    return layers.linear(ops.multiply(y, gate), weights, "Wo", hidden, inner, has_bias=has_bias)
