"""Rotary positions: heads turned by an angle that grows with the token's place in its text."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from openvino import opset15 as ops

from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node, constant

__all__ = ["Rotation", "frequencies", "rotation"]

Floats = npt.NDArray[np.float32]


class Rotation(msgspec.Struct, frozen=True):
    """cos and sin of each token's angles: float32 [rows, 1, width, head_size]."""

    cos: Any
    sin: Any
    head_size: int

    def turn(self, x: Node) -> Node:
        """`x` [rows, heads, width, head_size], its two halves turned against each other."""
        half = self.head_size // 2
        first, second = ops.variadic_split(x, constant(-1, np.int64), constant([half, half], np.int64)).outputs()
        swapped = ops.concat([ops.multiply(second, constant(-1, np.float32)), first], -1)
        return ops.add(ops.multiply(x, self.cos), ops.multiply(swapped, self.sin))


def rotation(rope: dict[str, Any], head_size: int, inputs: Inputs) -> Rotation:
    """The rotation of every token in its text.

    Looked up, not computed in the graph: in bfloat16 an angle would be another angle, while its cos stays near.

    Args:
        rope: an entry of config.json's `rope_parameters`.
    """
    angles = np.arange(inputs.max_length, dtype=np.float32)[:, None] * frequencies(rope, head_size)
    both = np.concatenate([angles, angles], axis=1).astype(np.float64)
    tables = (np.cos(both).astype(np.float32), np.sin(both).astype(np.float32))
    axis = constant(1, np.int64)
    cos, sin = (
        ops.unsqueeze(ops.gather(constant(table), inputs.index, constant(0, np.int64)), axis) for table in tables
    )
    return Rotation(cos, sin, head_size)


def frequencies(rope: dict[str, Any], head_size: int) -> Floats:
    """Radians a token of each pair of numbers: float32 [head_size / 2]."""
    exponents = np.arange(0, head_size, 2, dtype=np.float32) / np.float32(head_size)
    turns = 1.0 / np.float64(rope["rope_theta"]) ** exponents
    if rope["rope_type"] == "linear":
        turns = turns / rope["factor"]
    elif rope["rope_type"] == "llama3":
        turns = _llama3(turns, rope)
    return turns.astype(np.float32)


def _llama3(turns: npt.NDArray[np.float64], rope: dict[str, Any]) -> npt.NDArray[np.float64]:
    """Slow turns are slowed down by `factor`, fast ones are kept, those in between blend (Llama 3.1)."""
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    cycles = rope["original_max_position_embeddings"] * turns / (2 * math.pi)
    share = np.clip((cycles - low) / (high - low), 0, 1)
    return np.asarray((1 - share) * turns / rope["factor"] + share * turns, np.float64)
