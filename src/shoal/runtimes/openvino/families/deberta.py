"""DeBERTa v2 and v3: scores have a part that asks for a word and two that ask for a distance, by learned tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from openvino import opset15 as ops

from shoal.runtimes.openvino import layers
from shoal.runtimes.openvino.distances import width_of
from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node, constant
from shoal.runtimes.openvino.weights import Weights

__all__ = ["distance_rows", "encode"]

Config = dict[str, Any]
Floats = npt.NDArray[np.float32]


def encode(config: Config, weights: Weights, inputs: Inputs) -> Node:
    """Token states."""
    mask = inputs.mask()
    places = _Places(config, weights.under("encoder."), inputs) if config["relative_attention"] else None
    embedded = _embed(config, weights.under("embeddings."), inputs)
    x = embedded
    for i in range(config["num_hidden_layers"]):
        x = _layer(config, weights.under(f"encoder.layer.{i}."), x, mask, places)
        if i == 0 and config["conv_kernel_size"]:
            x = _convolve(config, weights.under("encoder.conv."), embedded, x, inputs)
    return x


def _embed(config: Config, weights: Weights, inputs: Inputs) -> Node:
    hidden, narrow, num_types = config["hidden_size"], config["embedding_size"], config["type_vocab_size"]
    x = layers.embedding(inputs.token_ids, weights, "word_embeddings", config["vocab_size"], narrow)
    if config["position_biased_input"]:
        size = config["max_position_embeddings"]
        x = ops.add(x, layers.embedding(inputs.positions(), weights, "position_embeddings", size, narrow))
    if num_types:
        types = layers.embedding(inputs.token_type_ids, weights, "token_type_embeddings", num_types, narrow)
        x = ops.add(x, types)
    if narrow != hidden:
        x = layers.linear(x, weights, "embed_proj", hidden, narrow, has_bias=False)
    return layers.layer_norm(x, weights, "LayerNorm", hidden, config["layer_norm_eps"])


def _layer(config: Config, weights: Weights, x: Node, mask: Node, places: _Places | None) -> Node:
    hidden, inner, epsilon = config["hidden_size"], config["intermediate_size"], config["layer_norm_eps"]
    size = config["num_attention_heads"] * config["attention_head_size"]
    mixed = _attention(config, weights.under("attention.self."), x, mask, places)
    mixed = layers.linear(mixed, weights, "attention.output.dense", hidden, size)
    x = layers.layer_norm(ops.add(mixed, x), weights, "attention.output.LayerNorm", hidden, epsilon)
    y = layers.linear(x, weights, "intermediate.dense", inner, hidden)
    y = layers.activation(y, config["hidden_act"], "config.json: hidden_act")
    y = layers.linear(y, weights, "output.dense", hidden, inner)
    return layers.layer_norm(ops.add(y, x), weights, "output.LayerNorm", hidden, epsilon)


def _attention(config: Config, weights: Weights, x: Node, mask: Node, places: _Places | None) -> Node:
    num_heads, head_size = config["num_attention_heads"], config["attention_head_size"]
    kinds, size = config["pos_att_type"], num_heads * head_size
    query, key, value = (
        layers.heads(layers.linear(x, weights, f"{name}_proj", size, config["hidden_size"]), num_heads, head_size)
        for name in ("query", "key", "value")
    )
    # Every kind of score counts in the scale, whether distances are used or not.
    scale = constant((head_size * (1 + len(kinds))) ** -0.5, np.float32)
    scores = ops.matmul(query, key, False, True)
    if places is not None:
        if "c2p" in kinds:
            scores = ops.add(scores, places.scores(query, weights, "key", descending=True))
        if "p2c" in kinds:
            by_key = places.scores(key, weights, "query", descending=False)
            scores = ops.add(scores, ops.transpose(by_key, constant([0, 1, 3, 2], np.int64)))
    return layers.mix_scored(ops.add(ops.multiply(scores, scale), mask), value, size)


class _Places:
    """The learned table of distances, and what heads say to each distance."""

    def __init__(self, config: Config, weights: Weights, inputs: Inputs) -> None:
        self._config, self._inputs = config, inputs
        buckets, most = config["position_buckets"], config["max_relative_positions"]
        span = buckets if buckets > 0 else most
        table = weights.take("rel_embeddings.weight", (2 * span, config["hidden_size"]))
        if "layer_norm" in config["norm_rel_ebd"]:
            table = _layer_norm(table, weights, "LayerNorm", config["layer_norm_eps"])
        self._table = table
        self._longest = inputs.max_width
        distances = np.arange(1 - self._longest, self._longest)
        self._rows = distance_rows(distances, span, buckets, most)

    def scores(self, x: Node, weights: Weights, name: str, *, descending: bool) -> Node:
        """[rows, heads, width, width]: entry [i, j] is token i's product with distance j - i, or i - j if descending.

        Distances of a row are a stretch of a constant table, one product gives them all; then row i is moved i to
        the left, so that each token finds its own distances in the same columns.
        """
        rows = self._rows[::-1] if descending else self._rows
        table = self._projected(weights, name)[:, rows]
        longest, width = constant([self._longest], np.int64), _as_list(width_of(self._inputs))
        one = constant([1], np.int64)
        start, stop = ops.subtract(longest, width), ops.subtract(ops.add(longest, width), one)
        stretch = ops.slice(constant(np.ascontiguousarray(table)), start, stop, one, one)
        return _moved(ops.matmul(x, stretch, False, True), width)

    def _projected(self, weights: Weights, name: str) -> Floats:
        """Each distance through a layer's projection: float32 [heads, distances, head_size]."""
        num_heads, head_size = self._config["num_attention_heads"], self._config["attention_head_size"]
        projection = f"{name}_proj" if self._config["share_att_key"] else f"pos_{name}_proj"
        size = num_heads * head_size
        matrix = weights.take(f"{projection}.weight", (size, self._config["hidden_size"]))
        y = self._table @ matrix.T + weights.take(f"{projection}.bias", (size,))
        return y.reshape(-1, num_heads, head_size).transpose(1, 0, 2)


def _as_list(scalar: Node) -> Node:
    return ops.unsqueeze(scalar, constant(0, np.int64))


def _moved(x: Node, width: Node) -> Node:
    """[.., width, 2 width - 1] to [.., width, width]: entry [i, j] is x[i, width - 1 + j - i].

    Rows are made one longer, and what they hold is cut into the old length again, so that each starts one earlier.
    """
    zero, one = constant([0], np.int64), constant([1], np.int64)
    odd = ops.subtract(ops.add(width, width), one)
    head = ops.slice(ops.shape_of(x), zero, constant([2], np.int64), one, zero)
    no_pad, pad = constant([0, 0, 0, 0], np.int64), constant([0, 0, 0, 1], np.int64)
    longer = ops.pad(x, no_pad, pad, "constant", constant(0, np.float32))
    flat = ops.reshape(longer, ops.concat([head, constant([-1], np.int64)], 0), False)
    flat = ops.slice(flat, zero, ops.multiply(width, odd), one, constant([2], np.int64))
    rows = ops.reshape(flat, ops.concat([head, width, odd], 0), False)
    return ops.slice(rows, ops.subtract(width, one), odd, one, constant([3], np.int64))


def distance_rows(distance: npt.NDArray[np.int64], span: int, buckets: int, most: int) -> npt.NDArray[np.int64]:
    """Row of the table for each distance: exact near 0, by logarithm farther off, float32 as the original.

    Args:
        span: half the table's rows.
        buckets: rows in each direction; 0 or less = every distance has its own.
        most: the distance from which on all share the last row.
    """
    place = distance
    if buckets > 0 and most > 0:
        middle = buckets // 2
        size = np.where(np.abs(distance) < middle, middle - 1, np.abs(distance)).astype(np.float32)
        whole = np.log(np.float32((most - 1) / middle))
        far = np.ceil(np.log(size / np.float32(middle)) / whole * np.float32(middle - 1)) + middle
        place = np.where(size <= middle, distance, far * np.sign(distance)).astype(np.int64)
    return np.clip(place + span, 0, 2 * span - 1)


def _layer_norm(table: Floats, weights: Weights, name: str, epsilon: float) -> Floats:
    mean = table.mean(axis=1, keepdims=True, dtype=np.float64)
    variance = table.var(axis=1, keepdims=True, dtype=np.float64)
    size = (table.shape[1],)
    scaled = (table - mean) / np.sqrt(variance + epsilon) * weights.take(f"{name}.weight", size)
    return np.asarray(scaled + weights.take(f"{name}.bias", size), np.float32)


def _convolve(config: Config, weights: Weights, embedded: Node, x: Node, inputs: Inputs) -> Node:
    """A convolution over the words, added to the first layer's states; it does not reach into a neighbour's text."""
    hidden, kernel = config["hidden_size"], config["conv_kernel_size"]
    matrices = weights.take("conv.weight", (hidden, hidden, kernel))
    zero, one, last = constant(0, np.int64), constant(1, np.int64), constant(2, np.int64)
    width = width_of(inputs)
    places = ops.range(zero, width, one, "i64")
    y = constant(weights.take("conv.bias", (hidden,)))
    for i in range(kernel):
        sources = ops.add(places, constant(i - kernel // 2, np.int64))
        inside = ops.minimum(ops.maximum(sources, zero), ops.subtract(width, one))
        same = ops.equal(ops.gather(inputs.segments, inside, one), inputs.segments)
        same = ops.logical_and(same, ops.unsqueeze(ops.equal(inside, sources), zero))
        near = ops.multiply(ops.gather(embedded, inside, one), ops.unsqueeze(ops.convert(same, "f32"), last))
        y = ops.add(ops.matmul(near, constant(np.ascontiguousarray(matrices[:, :, i])), False, True), y)
    y = layers.activation(y, config["conv_act"], "config.json: conv_act")
    return layers.layer_norm(ops.add(x, y), weights, "LayerNorm", hidden, config["layer_norm_eps"])
