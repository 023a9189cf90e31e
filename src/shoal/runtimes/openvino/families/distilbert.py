"""DistilBERT: BERT without token types, other names."""

from __future__ import annotations

from typing import Any

from openvino import opset15 as ops

from shoal.runtimes.openvino import layers
from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node
from shoal.runtimes.openvino.weights import Weights

__all__ = ["encode"]

_EPSILON = 1e-12
"""Fixed in the architecture, not in its config."""


def encode(config: dict[str, Any], weights: Weights, inputs: Inputs) -> Node:
    """Token states; sinusoidal positions are stored in the file like learned ones."""
    size, tables = config["dim"], weights.under("embeddings.")
    words = layers.embedding(inputs.token_ids, tables, "word_embeddings", config["vocab_size"], size)
    places = layers.embedding(
        inputs.positions(), tables, "position_embeddings", config["max_position_embeddings"], size
    )
    x = layers.layer_norm(ops.add(words, places), tables, "LayerNorm", size, _EPSILON)
    mask = inputs.mask()
    for i in range(config["n_layers"]):
        askers, seen = inputs.askers(x, mask, is_last=i == config["n_layers"] - 1)
        x = _layer(config, weights.under(f"transformer.layer.{i}."), x, seen, askers)
    return x


def _layer(config: dict[str, Any], weights: Weights, x: Node, mask: Node, askers: Node | None) -> Node:
    size, inner, num_heads = config["dim"], config["hidden_dim"], config["n_heads"]
    names = [f"attention.{name}_lin" for name in "qkv"]
    mixed = layers.self_attention(x, weights, names, mask, size, num_heads, askers)
    mixed = layers.linear(mixed, weights, "attention.out_lin", size, size)
    x = layers.layer_norm(ops.add(mixed, x if askers is None else askers), weights, "sa_layer_norm", size, _EPSILON)
    y = layers.linear(x, weights, "ffn.lin1", inner, size)
    y = layers.activation(y, config["activation"], "config.json: activation")
    y = layers.linear(y, weights, "ffn.lin2", size, inner)
    return layers.layer_norm(ops.add(y, x), weights, "output_layer_norm", size, _EPSILON)
