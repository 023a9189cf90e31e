"""ELECTRA: BERT whose tables may be narrower than its layers, with a linear layer in between."""

from __future__ import annotations

from typing import Any

from shoal.runtimes.openvino import layers
from shoal.runtimes.openvino.families import bert
from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node
from shoal.runtimes.openvino.weights import Weights

__all__ = ["encode"]


def encode(config: dict[str, Any], weights: Weights, inputs: Inputs) -> Node:
    """Token states."""
    narrow, hidden = config["embedding_size"], config["hidden_size"]
    x = bert.embed(config, weights.under("embeddings."), inputs, inputs.positions())
    if narrow != hidden:
        x = layers.linear(x, weights, "embeddings_project", hidden, narrow)
    mask = inputs.mask()
    for i in range(config["num_hidden_layers"]):
        askers, seen = inputs.askers(x, mask, is_last=i == config["num_hidden_layers"] - 1)
        x = bert.layer(config, weights.under(f"encoder.layer.{i}."), x, seen, askers)
    return x
