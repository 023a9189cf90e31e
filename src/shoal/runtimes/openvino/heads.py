"""Heads other than dense vectors: logits of labels for each text or token, and of the vocabulary for each token."""

from __future__ import annotations

from openvino import opset15 as ops

from shoal.catalog.spec import Classifier, HeadLayer, Pooling, Sparse, Tagger
from shoal.runtimes.openvino import layers
from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node, constant
from shoal.runtimes.openvino.pooling import pool
from shoal.runtimes.openvino.weights import Weights

__all__ = ["classify", "tag", "vocabulary_logits"]


def classify(states: Node, hidden: int, head: Classifier, weights: Weights, inputs: Inputs) -> Node:
    """Token states [rows, width, hidden] to logits [rows, slots, labels]."""
    x = pool(states, Pooling((head.pooling,)), inputs)
    return _logits(x, hidden, head.layers, len(head.labels), weights)


def tag(states: Node, hidden: int, head: Tagger, weights: Weights) -> Node:
    """Token states [rows, width, hidden] to logits [rows, width, labels]."""
    return _logits(states, hidden, head.layers, len(head.labels), weights)


def vocabulary_logits(states: Node, hidden: int, vocabulary_size: int, head: Sparse, weights: Weights) -> Node:
    """Token states [rows, width, hidden] to logits [rows, width, vocabulary]."""
    x = states
    for layer in head.layers:
        x = _layer(x, layer, weights, hidden, hidden)
    x = ops.matmul(x, constant(weights.take(head.decoder, (vocabulary_size, hidden))), False, True)
    return ops.add(x, constant(weights.take(head.bias, (vocabulary_size,))))


def _logits(x: Node, hidden: int, head: tuple[HeadLayer, ...], num_labels: int, weights: Weights) -> Node:
    for layer in head[:-1]:
        x = _layer(x, layer, weights, hidden, hidden)
    return _layer(x, head[-1], weights, num_labels, hidden)


def _layer(x: Node, layer: HeadLayer, weights: Weights, out_features: int, in_features: int) -> Node:
    if layer.rows:
        rows = weights.take_rows(f"{layer.name}.weight", layer.rows, in_features)
        return ops.matmul(x, constant(rows), False, True)
    x = layers.linear(x, weights, layer.name, out_features, in_features, has_bias=layer.has_bias)
    x = layers.activation(x, layer.activation, f"Activation of {layer.name}")
    if layer.norm:
        x = layers.layer_norm(x, weights, layer.norm, out_features, layer.norm_epsilon, has_bias=layer.norm_has_bias)
    return x
