"""BERT, RoBERTa and XLM-RoBERTa: one graph; the latter two number positions from padding_id + 1."""

from __future__ import annotations

from typing import Any

from openvino import opset15 as ops

from shoal.runtimes.openvino import layers
from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node
from shoal.runtimes.openvino.weights import Weights

__all__ = ["embed", "encode", "encode_roberta", "layer", "run_layers"]


def encode(config: dict[str, Any], weights: Weights, inputs: Inputs) -> Node:
    """BERT: positions from 0."""
    return _encode(config, weights, inputs, inputs.positions())


def encode_roberta(config: dict[str, Any], weights: Weights, inputs: Inputs) -> Node:
    """RoBERTa, XLM-RoBERTa: positions after the padding id."""
    return _encode(config, weights, inputs, inputs.positions(config["pad_token_id"]))


def _encode(config: dict[str, Any], weights: Weights, inputs: Inputs, positions: Node) -> Node:
    return run_layers(config, weights, inputs, embed(config, weights.under("embeddings."), inputs, positions))


def run_layers(config: dict[str, Any], weights: Weights, inputs: Inputs, x: Node) -> Node:
    """All layers over what `embed` gives."""
    mask = inputs.mask()
    for i in range(config["num_hidden_layers"]):
        askers, seen = inputs.askers(x, mask, is_last=i == config["num_hidden_layers"] - 1)
        x = layer(config, weights.under(f"encoder.layer.{i}."), x, seen, askers)
    return x


def embed(
    config: dict[str, Any], weights: Weights, inputs: Inputs, positions: Node, offset: Node | None = None
) -> Node:
    """The sum of the three tables, normalised: [rows, width, embedding_size, or hidden_size where there is none].

    Args:
        offset: [embedding_size] that is added to each.
    """
    hidden = config.get("embedding_size", config["hidden_size"])
    words = layers.embedding(inputs.token_ids, weights, "word_embeddings", config["vocab_size"], hidden)
    types = layers.embedding(inputs.token_type_ids, weights, "token_type_embeddings", config["type_vocab_size"], hidden)
    places = layers.embedding(positions, weights, "position_embeddings", config["max_position_embeddings"], hidden)
    total = ops.add(ops.add(words, types), places)
    if offset is not None:
        total = ops.add(total, offset)
    return layers.layer_norm(total, weights, "LayerNorm", hidden, config["layer_norm_eps"])


def layer(config: dict[str, Any], weights: Weights, x: Node, mask: Node, askers: Node | None) -> Node:
    """One layer: attention, then the two linear layers, each added to what it was given and normalised after.

    Args:
        askers: see `Inputs.askers`; only their states are returned.
    """
    hidden, inner, num_heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    epsilon = config["layer_norm_eps"]
    names = [f"attention.self.{name}" for name in ("query", "key", "value")]
    mixed = layers.self_attention(x, weights, names, mask, hidden, num_heads, askers)
    mixed = layers.linear(mixed, weights, "attention.output.dense", hidden, hidden)
    x = layers.layer_norm(
        ops.add(mixed, x if askers is None else askers), weights, "attention.output.LayerNorm", hidden, epsilon
    )
    y = layers.linear(x, weights, "intermediate.dense", inner, hidden)
    y = layers.activation(y, config["hidden_act"], "config.json: hidden_act")
    y = layers.linear(y, weights, "output.dense", hidden, inner)
    return layers.layer_norm(ops.add(y, x), weights, "output.LayerNorm", hidden, epsilon)
