"""MPNet: BERT without token types, with a bias for each head and bucketed distance between two tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from openvino import opset15 as ops

from shoal.errors import ModelRefused
from shoal.runtimes.openvino import layers
from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node, constant
from shoal.runtimes.openvino.weights import Weights

__all__ = ["distance_buckets", "encode"]

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
        x = _layer(config, weights.under(f"encoder.layer.{i}."), x, mask)
    return x


def _layer(config: dict[str, Any], weights: Weights, x: Node, mask: Node) -> Node:
    hidden, inner, num_heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    epsilon = config["layer_norm_eps"]
    names = [f"attention.attn.{name}" for name in "qkv"]
    mixed = layers.self_attention(x, weights, names, mask, hidden, num_heads)
    mixed = layers.linear(mixed, weights, "attention.attn.o", hidden, hidden)
    x = layers.layer_norm(ops.add(mixed, x), weights, "attention.LayerNorm", hidden, epsilon)
    y = layers.linear(x, weights, "intermediate.dense", inner, hidden)
    y = layers.activation(y, config["hidden_act"], "config.json: hidden_act")
    y = layers.linear(y, weights, "output.dense", hidden, inner)
    return layers.layer_norm(ops.add(y, x), weights, "output.LayerNorm", hidden, epsilon)


def _distance_bias(config: dict[str, Any], weights: Weights, inputs: Inputs) -> Node:
    """float32 [1, num_heads, width, width]: distances are the same in a packed row as in the text alone."""
    num_buckets = config["relative_attention_num_buckets"]
    if num_buckets != _NUM_BUCKETS:
        raise ModelRefused(f"config.json: relative_attention_num_buckets is {num_buckets}; only {_NUM_BUCKETS} works.")
    table = weights.take("relative_attention_bias.weight", (_NUM_BUCKETS, config["num_attention_heads"]))
    far = _MAX_DISTANCE
    by_distance = table[distance_buckets(np.arange(-far, far + 1))].T
    width = ops.gather(ops.shape_of(inputs.token_ids), constant(1, np.int64), constant(0, np.int64))
    places = ops.range(constant(0, np.int64), width, constant(1, np.int64), "i64")
    one, zero = constant(1, np.int64), constant(0, np.int64)
    distance = ops.subtract(ops.unsqueeze(places, zero), ops.unsqueeze(places, one))
    rows = ops.add(ops.clamp(distance, -far, far), constant(far, np.int64))
    return ops.unsqueeze(ops.gather(constant(by_distance), rows, one), zero)


def distance_buckets(distance: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bucket of each distance (key's place minus query's): T5's scheme, both directions, float32 as the original.

    Every distance of 128 or more shares the last bucket of its direction.
    """
    half = _NUM_BUCKETS // 2
    exact = half // 2
    size = np.abs(distance)
    scale = np.float32(math.log(_MAX_DISTANCE / exact))
    logarithm = np.log(np.maximum(size, 1).astype(np.float32) / np.float32(exact))
    far = exact + (logarithm / scale * np.float32(half - exact)).astype(np.int64)
    bucket = np.where(size < exact, size, np.minimum(far, half - 1))
    return bucket + np.where(distance > 0, half, 0)
