"""T5's encoder: one bias by distance for all layers, norms that keep the mean, scores that are not scaled."""

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

Config = dict[str, Any]


def encode(config: Config, weights: Weights, inputs: Inputs) -> Node:
    """Token states."""
    size, epsilon = config["d_model"], config["layer_norm_epsilon"]
    x = layers.embedding(inputs.token_ids, weights, "shared", config["vocab_size"], size)
    blocks = weights.under("encoder.block.")
    mask = ops.add(inputs.mask(), _distance_bias(config, blocks.under("0.layer.0.SelfAttention."), inputs))
    for i in range(config["num_layers"]):
        block = blocks.under(f"{i}.layer.")
        y = layers.rms_norm(x, block, "0.layer_norm", size, epsilon)
        x = ops.add(x, _attention(config, block.under("0.SelfAttention."), y, mask))
        y = layers.rms_norm(x, block, "1.layer_norm", size, epsilon)
        x = ops.add(x, _feed_forward(config, block.under("1.DenseReluDense."), y))
    return layers.rms_norm(x, weights, "encoder.final_layer_norm", size, epsilon)


def _attention(config: Config, weights: Weights, x: Node, mask: Node) -> Node:
    size, num_heads, head_size = config["d_model"], config["num_heads"], config["d_kv"]
    inner = num_heads * head_size
    query, key, value = (layers.linear(x, weights, name, inner, size, has_bias=False) for name in "qkv")
    mixed = layers.attention(query, key, value, mask, num_heads, head_size)
    return layers.linear(mixed, weights, "o", size, inner, has_bias=False)


def _feed_forward(config: Config, weights: Weights, x: Node) -> Node:
    size, inner = config["d_model"], config["d_ff"]
    kind = config["feed_forward_proj"]
    gate, _, name = kind.rpartition("-")
    # The exact form would be expected, but all of T5 1.1 was trained with the other one.
    name = "gelu_new" if kind == "gated-gelu" else name
    first = "wi_0" if gate else "wi"
    y = layers.activation(
        layers.linear(x, weights, first, inner, size, has_bias=False), name, "config.json: feed_forward_proj"
    )
    if gate:
        y = ops.multiply(y, layers.linear(x, weights, "wi_1", inner, size, has_bias=False))
    return layers.linear(y, weights, "wo", size, inner, has_bias=False)


def _distance_bias(config: Config, weights: Weights, inputs: Inputs) -> Node:
    num_buckets, far = config["relative_attention_num_buckets"], config["relative_attention_max_distance"]
    if num_buckets % 4 or 4 * far <= num_buckets:
        raise ModelRefused(
            f"config.json: relative_attention_num_buckets is {num_buckets} and relative_attention_max_distance {far}; "
            "understood: a multiple of 4, and a distance above a quarter of it."
        )
    table = weights.take("relative_attention_bias.weight", (num_buckets, config["num_heads"]))
    buckets = distance_buckets(np.arange(-far, far + 1), num_buckets, far)
    return bias_by_distance(np.ascontiguousarray(table[buckets].T), inputs)
