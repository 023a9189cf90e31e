"""What decoders are made of: attention whose queries share keys, gated layers. Knows no family."""

from __future__ import annotations

import msgspec
import numpy as np
from openvino import opset15 as ops

from shoal.runtimes.openvino import layers
from shoal.runtimes.openvino.layers import Node, constant
from shoal.runtimes.openvino.rope import Rotation
from shoal.runtimes.openvino.weights import Weights

__all__ = ["Grouped", "attend", "gated"]


class Grouped(msgspec.Struct, frozen=True):
    """An attention's shape.

    Attributes:
        hidden: width of token states.
        num_heads, num_key_heads: of queries, and of keys and values; the second divides the first.
        head_size: width of a head.
        scale: of the scores.
        query_bias, output_bias: biases of query, key and value, and of what follows.
        norm_epsilon: of the norms of each head's query and key; 0 = there are none.
        norm_offset: what the norms add to their weights.
    """

    hidden: int
    num_heads: int
    num_key_heads: int
    head_size: int
    scale: float
    query_bias: bool = False
    output_bias: bool = False
    norm_epsilon: float = 0.0
    norm_offset: float = 0.0


def attend(x: Node, weights: Weights, mask: Node, turns: Rotation, shape: Grouped) -> Node:
    """Attention of `x` [rows, width, hidden] on itself, heads turned by their places."""
    query = _turned(x, weights, "q", shape.num_heads, turns, shape)
    key = _turned(x, weights, "k", shape.num_key_heads, turns, shape)
    value = _heads(x, weights, "v_proj", shape.num_key_heads, shape)
    query = ops.multiply(query, constant(shape.scale, np.float32))
    key, value = (_shared(node, shape) for node in (key, value))
    size = shape.num_heads * shape.head_size
    mixed = layers.mix_heads(query, key, value, mask, size)
    return layers.linear(mixed, weights, "o_proj", shape.hidden, size, has_bias=shape.output_bias)


def gated(x: Node, weights: Weights, hidden: int, inner: int, activation: str, *, has_bias: bool, key: str) -> Node:
    """down(activation(gate(x)) * up(x)); `key` is where config.json names the activation."""
    gate, up = (layers.linear(x, weights, name, inner, hidden, has_bias=has_bias) for name in ("gate_proj", "up_proj"))
    y = ops.multiply(layers.activation(gate, activation, f"config.json: {key}"), up)
    return layers.linear(y, weights, "down_proj", hidden, inner, has_bias=has_bias)


def _heads(x: Node, weights: Weights, name: str, num_heads: int, shape: Grouped) -> Node:
    size = num_heads * shape.head_size
    y = layers.linear(x, weights, name, size, shape.hidden, has_bias=shape.query_bias)
    return layers.heads(y, num_heads, shape.head_size)


def _turned(x: Node, weights: Weights, letter: str, num_heads: int, turns: Rotation, shape: Grouped) -> Node:
    y = _heads(x, weights, f"{letter}_proj", num_heads, shape)
    if shape.norm_epsilon:
        y = layers.rms_norm(y, weights, f"{letter}_norm", shape.head_size, shape.norm_epsilon, offset=shape.norm_offset)
    return turns.turn(y)


def _shared(x: Node, shape: Grouped) -> Node:
    """[rows, num_key_heads, width, head_size] to num_heads: neighbouring queries share a key."""
    if shape.num_heads == shape.num_key_heads:
        return x
    owners = np.repeat(np.arange(shape.num_key_heads), shape.num_heads // shape.num_key_heads)
    return ops.gather(x, constant(owners, np.int64), constant(1, np.int64))
