"""MPNet: BERT without token types, with a bias for each head and bucketed distance between two tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from openvino import opset15 as ops

from shoal.errors import ModelRefused
from shoal.runtimes.openvino import layers
from shoal.runtimes.openvino.distances import bias_by_distance, distance_buckets
from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node
from shoal.runtimes.openvino.weights import Weights

__all__ = ["encode"]

_PADDING_ID, _NUM_BUCKETS, _MAX_DISTANCE = 1, 32, 128
"""Fixed in the architecture, not read from its config."""


def encode(config: dict[str, Any], weights: Weights, inputs: Inputs) -> Node:
    """Token states."""
    hidden, tables = config["hidden_size"], weights.under("embeddings.")
    words = layers.embedding(inputs.token_ids, tables, "word_embeddings", config["vocab_size"], hidden)
    places = layers.embedding(
        inputs.positions(_PADDING_ID), tables, "position_embeddings", config["max_position_embeddings"], hidden
    )
    x = layers.layer_norm(ops.add(words, places), tables, "LayerNorm", hidden, config["layer_norm_eps"])
    mask = ops.add(inputs.mask(), _distance_bias(config, weights.under("encoder."), inputs))
    for i in range(config["num_hidden_layers"]):
        askers, seen = inputs.askers(x, mask, is_last=i == config["num_hidden_layers"] - 1)
        x = _layer(config, weights.under(f"encoder.layer.{i}."), x, seen, askers)
    return x


def _layer(config: dict[str, Any], weights: Weights, x: Node, mask: Node, askers: Node | None) -> Node:
    hidden, inner, num_heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    epsilon = config["layer_norm_eps"]
    names = [f"attention.attn.{name}" for name in "qkv"]
    mixed = layers.self_attention(x, weights, names, mask, hidden, num_heads, askers)
    mixed = layers.linear(mixed, weights, "attention.attn.o", hidden, hidden)
    x = layers.layer_norm(
        ops.add(mixed, x if askers is None else askers), weights, "attention.LayerNorm", hidden, epsilon
    )
    y = layers.linear(x, weights, "intermediate.dense", inner, hidden)
    y = layers.activation(y, config["hidden_act"], "config.json: hidden_act")
    y = layers.linear(y, weights, "output.dense", hidden, inner)
    return layers.layer_norm(ops.add(y, x), weights, "output.LayerNorm", hidden, epsilon)


def _distance_bias(config: dict[str, Any], weights: Weights, inputs: Inputs) -> Node:
    """float32 [1, num_heads, width, width]."""
    num_buckets = config["relative_attention_num_buckets"]
    if num_buckets != _NUM_BUCKETS:
        raise ModelRefused(f"config.json: relative_attention_num_buckets is {num_buckets}; only {_NUM_BUCKETS} works.")
    table = weights.take("relative_attention_bias.weight", (_NUM_BUCKETS, config["num_attention_heads"]))
    far = _MAX_DISTANCE
    buckets = distance_buckets(np.arange(-far, far + 1), _NUM_BUCKETS, far)
    return bias_by_distance(np.ascontiguousarray(table[buckets].T), inputs)
