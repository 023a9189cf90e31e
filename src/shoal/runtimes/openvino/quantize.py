"""Matrices of a graph in eight bits: a pass over a built graph, the same for every family.

Each output feature of a linear layer has its own scale, max|w| / 127; embedding tables, norms and biases stay as they
are. The library multiplies with the eight-bit numbers where it has kernels for it, and makes floats of them elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino as ov
from openvino import opset15 as ops

__all__ = ["quantize_weights"]


def quantize_weights(model: Any) -> int:
    """Put int8 matrices in the place of float32 ones; returns how many bytes that saves."""
    saved = 0
    for node in model.get_ordered_ops():
        if node.get_type_name() == "MatMul" and _is_matrix(node.input_value(1).get_node()):
            constant = node.input_value(1).get_node()
            weights = np.array(constant.data, np.float32)
            features_axis = 0 if node.get_attributes()["transpose_b"] else 1
            scales = np.abs(weights).max(axis=1 - features_axis, keepdims=True) / np.float32(127)
            scales[scales == 0] = 1
            rounded = np.round(weights / scales).astype(np.int8)
            numbers = ops.convert(ov.op.Constant(rounded), "f32")
            product = ops.multiply(numbers, ov.op.Constant(scales.astype(np.float32)))
            node.input(1).replace_source_output(product.output(0))
            saved += 3 * weights.size - 4 * scales.size
    return saved


def _is_matrix(node: Any) -> bool:
    return node.get_type_name() == "Constant" and len(node.get_output_shape(0)) == 2
