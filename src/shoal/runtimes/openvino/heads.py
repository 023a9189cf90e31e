"""Heads other than dense vectors: a label's logits for each text, and the vocabulary's logits for each token."""

from __future__ import annotations

from openvino import opset15 as ops

from shoal.catalog.spec import Classifier, HeadLayer, Pooling, Sparse
from shoal.runtimes.openvino import layers
from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node, constant
from shoal.runtimes.openvino.pooling import pool
from shoal.runtimes.openvino.weights import Weights

__all__ = ["classify", "vocabulary_logits"]


def classify(states: Node, hidden: int, head: Classifier, weights: Weights, inputs: Inputs) -> Node:
    """Token states [rows, width, hidden] to logits [rows, slots, labels]."""
    x = pool(states, Pooling((head.pooling,)), inputs)
    for layer in head.layers[:-1]:
        x = _layer(x, layer, weights, hidden, hidden)
    return _layer(x, head.layers[-1], weights, len(head.labels), hidden)


def vocabulary_logits(states: Node, hidden: int, vocabulary_size: int, head: Sparse, weights: Weights) -> Node:
    """Token states [rows, width, hidden] to logits [rows, width, vocabulary]."""
    x = states
    for layer in head.layers:
        x = _layer(x, layer, weights, hidden, hidden)
    x = ops.matmul(x, constant(weights.take(head.decoder, (vocabulary_size, hidden))), False, True)
    return ops.add(x, constant(weights.take(head.bias, (vocabulary_size,))))


def _layer(x: Node, layer: HeadLayer, weights: Weights, out_features: int, in_features: int) -> Node:
    x = layers.linear(x, weights, layer.name, out_features, in_features, has_bias=layer.has_bias)
    x = layers.activation(x, layer.activation, f"Activation of {layer.name}")
    if layer.norm:
        x = layers.layer_norm(x, weights, layer.norm, out_features, layer.norm_epsilon, has_bias=layer.norm_has_bias)
    return x
