"""NomicBERT and GTE: BERT with rotary positions and gated layers; tensors are named as in their first repositories."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from openvino import opset15 as ops

from shoal.runtimes.openvino import layers
from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node, constant
from shoal.runtimes.openvino.rope import Rotation, rotation
from shoal.runtimes.openvino.weights import Weights

__all__ = ["encode_gte", "encode_nomic"]

Config = dict[str, Any]


class _Names(msgspec.Struct, frozen=True):
    """What a member of the family calls its tensors.

    Attributes:
        up_and_gate: the two linear layers before the product, or one that holds both.
        has_bias: whether all linear layers but those two have biases.
    """

    embedding_norm: str
    layer: str
    query_key_value: str
    attention_output: str
    attention_norm: str
    up_and_gate: tuple[str, ...]
    down: str
    mlp_norm: str
    has_bias: bool


_NOMIC = _Names(
    embedding_norm="emb_ln",
    layer="encoder.layers.",
    query_key_value="attn.Wqkv",
    attention_output="attn.out_proj",
    attention_norm="norm1",
    up_and_gate=("mlp.fc11", "mlp.fc12"),
    down="mlp.fc2",
    mlp_norm="norm2",
    has_bias=False,
)
_GTE = _Names(
    embedding_norm="embeddings.LayerNorm",
    layer="encoder.layer.",
    query_key_value="attention.qkv_proj",
    attention_output="attention.o_proj",
    attention_norm="attn_ln",
    up_and_gate=("mlp.up_gate_proj",),
    down="mlp.down_proj",
    mlp_norm="mlp_ln",
    has_bias=True,
)


def encode_nomic(config: Config, weights: Weights, inputs: Inputs) -> Node:
    """NomicBERT's token states."""
    return _encode(config, weights, inputs, _NOMIC)


def encode_gte(config: Config, weights: Weights, inputs: Inputs) -> Node:
    """GTE's token states."""
    return _encode(config, weights, inputs, _GTE)


def _encode(config: Config, weights: Weights, inputs: Inputs, names: _Names) -> Node:
    hidden, num_types, epsilon = config["hidden_size"], config["type_vocab_size"], config["layer_norm_eps"]
    tables = weights.under("embeddings.")
    x = layers.embedding(inputs.token_ids, tables, "word_embeddings", config["vocab_size"], hidden)
    if num_types:
        x = ops.add(x, layers.embedding(inputs.token_type_ids, tables, "token_type_embeddings", num_types, hidden))
    x = layers.layer_norm(x, weights, names.embedding_norm, hidden, epsilon)
    mask = inputs.mask()
    turns = rotation(config["rope_parameters"], hidden // config["num_attention_heads"], inputs)
    for i in range(config["num_hidden_layers"]):
        here = weights.under(f"{names.layer}{i}.")
        y = _attention(config, here, x, mask, turns, names)
        x = layers.layer_norm(ops.add(x, y), here, names.attention_norm, hidden, epsilon)
        x = layers.layer_norm(ops.add(x, _gated(config, here, x, names)), here, names.mlp_norm, hidden, epsilon)
    return x


def _attention(config: Config, weights: Weights, x: Node, mask: Node, turns: Rotation, names: _Names) -> Node:
    hidden, num_heads = config["hidden_size"], config["num_attention_heads"]
    y = layers.linear(x, weights, names.query_key_value, 3 * hidden, hidden, has_bias=names.has_bias)
    parts = ops.split(y, constant(2, np.int64), 3).outputs()
    query, key, value = (layers.heads(part, num_heads, hidden // num_heads) for part in parts)
    query = ops.multiply(turns.turn(query), constant((hidden // num_heads) ** -0.5, np.float32))
    mixed = layers.mix_heads(query, turns.turn(key), value, mask, hidden)
    return layers.linear(mixed, weights, names.attention_output, hidden, hidden, has_bias=names.has_bias)


def _gated(config: Config, weights: Weights, x: Node, names: _Names) -> Node:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    size = 2 * inner // len(names.up_and_gate)
    parts = [layers.linear(x, weights, name, size, hidden, has_bias=False) for name in names.up_and_gate]
    up, gate = parts if len(parts) == 2 else ops.split(parts[0], constant(2, np.int64), 2).outputs()
    y = ops.multiply(layers.activation(gate, config["hidden_act"], "config.json: hidden_act"), up)
    return layers.linear(y, weights, names.down, hidden, inner, has_bias=names.has_bias)
