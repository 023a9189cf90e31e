"""Building blocks of encoder graphs, in OpenVINO's operations. Knows no family and no packing.

Token states are float32 [rows, width, hidden]; everything acts on the last axis or, in attention, inside a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset15 as ops

from shoal.errors import ModelRefused
from shoal.runtimes.openvino.weights import Weights

__all__ = [
    "ACTIVATIONS",
    "Node",
    "activation",
    "attention",
    "constant",
    "embedding",
    "heads",
    "layer_norm",
    "linear",
    "mix_heads",
    "mix_scored",
    "rms_norm",
    "self_attention",
]

Floats = npt.NDArray[np.float32]

Node = Any
"""An openvino node or output; the library has no types."""


def constant(values: npt.ArrayLike, dtype: Any = None) -> Node:
    """A constant that shares the array's memory."""
    array = np.asarray(values, dtype)
    return ov.op.Constant(np.ascontiguousarray(array).reshape(array.shape), shared_memory=True)


def linear(x: Node, weights: Weights, name: str, out_features: int, in_features: int, *, has_bias: bool = True) -> Node:
    """x W^T + b, with W `name.weight` [out_features, in_features] and b `name.bias`; "" for a name is no name."""
    name = name and f"{name}."
    weight = weights.take(f"{name}weight", (out_features, in_features))
    y = ops.matmul(x, constant(weight), False, True)
    return ops.add(y, constant(weights.take(f"{name}bias", (out_features,)))) if has_bias else y


def layer_norm(x: Node, weights: Weights, name: str, size: int, epsilon: float, *, has_bias: bool = True) -> Node:
    """As torch.nn.LayerNorm over the last axis."""
    y = ops.mvn(x, constant([-1], np.int64), True, float(epsilon), "inside_sqrt")
    y = ops.multiply(y, constant(weights.take(f"{name}.weight", (size,))))
    return ops.add(y, constant(weights.take(f"{name}.bias", (size,)))) if has_bias else y


def rms_norm(x: Node, weights: Weights, name: str, size: int, epsilon: float, *, offset: float = 0.0) -> Node:
    """x / sqrt(mean(x^2) + epsilon) * (weight + offset) over the last axis: the mean is not taken off."""
    square = ops.reduce_mean(ops.multiply(x, x), constant([-1], np.int64), True)
    y = ops.divide(x, ops.sqrt(ops.add(square, constant(epsilon, np.float32))))
    return ops.multiply(y, constant(weights.take(f"{name}.weight", (size,)) + np.float32(offset)))


def embedding(ids: Node, weights: Weights, name: str, num_rows: int, size: int) -> Node:
    """Rows `ids` of the table `name.weight` [num_rows, size]."""
    return ops.gather(constant(weights.take(f"{name}.weight", (num_rows, size))), ids, constant(0))


def self_attention(
    x: Node, weights: Weights, names: Sequence[str], mask: Node, hidden: int, num_heads: int, askers: Node | None = None
) -> Node:
    """Attention of `x` [rows, width, hidden] on itself; `names` are the linear layers of query, key and value.

    The three are one matrix multiplication, and the scale of the scores is folded into the query's weights.

    Args:
        askers: [rows, slots, hidden], those tokens of `x` whose attention is wanted, None = all; `mask` is theirs.
    """
    if hidden % num_heads:
        raise ModelRefused(f"config.json: {num_heads} attention heads do not divide a width of {hidden}.")
    head_size = hidden // num_heads
    scales = (np.float32(head_size**-0.5), np.float32(1), np.float32(1))
    matrices = [
        weights.take(f"{name}.weight", (hidden, hidden)) * scale for name, scale in zip(names, scales, strict=True)
    ]
    offsets = [weights.take(f"{name}.bias", (hidden,)) * scale for name, scale in zip(names, scales, strict=True)]
    if askers is None:
        query, key, value = _linear_parts(x, matrices, offsets)
    else:
        (query,) = _linear_parts(askers, matrices[:1], offsets[:1])
        key, value = _linear_parts(x, matrices[1:], offsets[1:])
    return attention(query, key, value, mask, num_heads, head_size)


def _linear_parts(x: Node, matrices: Sequence[Floats], offsets: Sequence[Floats]) -> list[Node]:
    """Several linear layers over the same states, as one matrix multiplication."""
    y = ops.matmul(x, constant(np.concatenate(matrices)), False, True)
    y = ops.add(y, constant(np.concatenate(offsets)))
    return [y] if len(matrices) == 1 else list(ops.split(y, constant(2, np.int64), len(matrices)).outputs())


def attention(query: Node, key: Node, value: Node, mask: Node, num_heads: int, head_size: int) -> Node:
    """softmax(Q K^T + mask) V, a head at a time; the query is scaled already.

    `query`, `key` and `value` are [rows, width, num_heads * head_size], `mask` [rows, 1 or num_heads, width, width].
    """
    query, key, value = (heads(x, num_heads, head_size) for x in (query, key, value))
    return mix_heads(query, key, value, mask, num_heads * head_size)


def heads(x: Node, num_heads: int, head_size: int) -> Node:
    """[rows, width, num_heads * head_size] to [rows, num_heads, width, head_size]."""
    split = ops.reshape(x, constant([0, 0, num_heads, head_size], np.int64), True)
    return ops.transpose(split, constant(_SWAP, np.int64))


def mix_heads(query: Node, key: Node, value: Node, mask: Node, size: int) -> Node:
    """As `attention`, for what `heads` gave; `size` is num_heads * head_size."""
    return mix_scored(ops.add(ops.matmul(query, key, False, True), mask), value, size)


def mix_scored(scores: Node, value: Node, size: int) -> Node:
    """softmax(scores) V, heads put together: `scores` [rows, num_heads, width, width] to [rows, width, size]."""
    mixed = ops.matmul(ops.softmax(scores, -1), value, False, False)
    return ops.reshape(ops.transpose(mixed, constant(_SWAP, np.int64)), constant([0, 0, size], np.int64), True)


_SWAP = (0, 2, 1, 3)


def activation(x: Node, name: str, key: str) -> Node:
    """An activation by the name that the model's files give it; `key` says where, as in "config.json: hidden_act".

    Raises:
        ModelRefused: names the activation and those there are.
    """
    if name not in ACTIVATIONS:
        raise ModelRefused(f"{key} is {name!r}; understood: {', '.join(sorted(ACTIVATIONS))}.")
    return ACTIVATIONS[name](x)


def _gelu_new(x: Node) -> Node:
    return ops.gelu(x, "tanh")


def _gelu(x: Node) -> Node:
    return ops.gelu(x, "erf")


def _quick_gelu(x: Node) -> Node:
    return ops.multiply(x, ops.sigmoid(ops.multiply(x, constant(1.702, np.float32))))


ACTIVATIONS: dict[str, Callable[[Node], Node]] = {
    "gelu": _gelu,
    "gelu_accurate": _gelu_new,
    "gelu_fast": _gelu_new,
    "gelu_new": _gelu_new,
    "gelu_python": _gelu,
    "gelu_pytorch_tanh": _gelu_new,
    "identity": lambda x: x,
    "linear": lambda x: x,
    "mish": lambda x: ops.mish(x),
    "quick_gelu": _quick_gelu,
    "relu": lambda x: ops.relu(x),
    "sigmoid": lambda x: ops.sigmoid(x),
    "silu": lambda x: ops.swish(x),
    "swish": lambda x: ops.swish(x),
    "tanh": lambda x: ops.tanh(x),
}
"""Names in config.json (those of transformers' ACT2FN) to what they mean; `gelu` is the exact erf form."""
