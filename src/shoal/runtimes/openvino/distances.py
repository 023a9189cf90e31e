"""Attention that depends on the distance between two tokens: a bias by distance, and T5's buckets of distances.

Distances are the same in a packed row as in the text alone, so nothing here knows of texts.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from openvino import opset15 as ops

from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node, constant

__all__ = ["bias_by_distance", "distance_buckets", "width_of"]


def width_of(inputs: Inputs) -> Node:
    """int64 scalar: tokens in a row."""
    return ops.gather(ops.shape_of(inputs.token_ids), constant(1, np.int64), constant(0, np.int64))


def bias_by_distance(by_distance: npt.NDArray[np.float32], inputs: Inputs) -> Node:
    """float32 [1, num_heads, width, width] to add to scores.

    Args:
        by_distance: float32 [num_heads, 2 far + 1]: for each distance (key's place minus query's) from -far to far;
            those beyond share the last entries.
    """
    far = by_distance.shape[1] // 2
    zero, one = constant(0, np.int64), constant(1, np.int64)
    places = ops.range(zero, width_of(inputs), one, "i64")
    distance = ops.subtract(ops.unsqueeze(places, zero), ops.unsqueeze(places, one))
    entries = ops.add(ops.clamp(distance, -far, far), constant(far, np.int64))
    return ops.unsqueeze(ops.gather(constant(by_distance), entries, one), zero)


def distance_buckets(distance: npt.NDArray[np.int64], num_buckets: int, max_distance: int) -> npt.NDArray[np.int64]:
    """Bucket of each distance: T5's scheme, both directions, float32 as the original.

    Every distance of `max_distance` or more shares the last bucket of its direction.
    """
    half = num_buckets // 2
    exact = half // 2
    size = np.abs(distance)
    scale = np.float32(math.log(max_distance / exact))
    logarithm = np.log(np.maximum(size, 1).astype(np.float32) / np.float32(exact))
    far = exact + (logarithm / scale * np.float32(half - exact)).astype(np.int64)
    bucket = np.where(size < exact, size, np.minimum(far, half - 1))
    return bucket + np.where(distance > 0, half, 0)
