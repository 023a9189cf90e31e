"""What follows the encoder: Pooling over packed rows, Dense, Normalize. Equal to sentence-transformers, case by case.

A row holds several texts, so pooling gives float32 [rows, slots, features]: a vector for each text of each row, and
something meaningless in the slots that a row does not fill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from openvino import opset15 as ops

from shoal.catalog.spec import Dense, Module, Normalize, Pooling
from shoal.errors import ModelRefused
from shoal.runtimes.openvino import layers
from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node, constant
from shoal.runtimes.openvino.weights import open_weights

__all__ = ["apply_modules", "dense", "pool", "transform"]

_NO_INDEX = 1 << 22
"""Behind every token; exact in float32 too, in which the library may compare integers."""


def apply_modules(states: Node, hidden: int, modules: tuple[Module, ...], directory: str, inputs: Inputs) -> Node:
    """Token states [rows, width, hidden] to vectors [rows, slots, dimensions].

    Raises:
        ModelRefused: the first module is not a Pooling, a later one is, or a Dense does not fit or lacks its weights.
    """
    if not modules or not isinstance(modules[0], Pooling):
        raise ModelRefused(f"{directory}/modules.json: the module after the encoder must be a Pooling.")
    x = pool(states, modules[0], inputs)
    return transform(x, hidden * len(modules[0].modes), modules[1:], directory)


def transform(x: Node, size: int, modules: Sequence[Module], directory: str) -> Node:
    """Dense and Normalize over the last axis, which has `size` numbers.

    Raises:
        ModelRefused: a module is a Pooling, or a Dense does not fit or lacks its weights.
    """
    for module in modules:
        if isinstance(module, Dense):
            x, size = dense(x, size, module, directory), module.out_features
        elif isinstance(module, Normalize):
            x = _normalize(x)
        else:
            raise ModelRefused(f"{directory}/modules.json: a second Pooling is not understood.")
    return x


def pool(states: Node, pooling: Pooling, inputs: Inputs) -> Node:
    """The modes of `pooling`, concatenated in their order."""
    if inputs.is_narrow:
        return states
    texts = _Texts(states, pooling, inputs)
    pooled = [_MODES[mode](texts) for mode in pooling.modes]
    return ops.concat(pooled, -1) if len(pooled) > 1 else pooled[0]


class _Texts:
    """Which token belongs to which slot: bool [rows, slots, width], all tokens and those that count in pooling."""

    def __init__(self, states: Node, pooling: Pooling, inputs: Inputs) -> None:
        self.states = states
        self.index = ops.unsqueeze(inputs.index, constant(1, np.int64))
        self.slots = inputs.slots
        self.all = _members(inputs.segments, inputs.slots)
        self.counted_segments = inputs.segments if pooling.include_prompt else inputs.pooled_segments
        self.counted = _members(self.counted_segments, inputs.slots)

    def total(self, factors: Node) -> Node:
        """Sum over tokens, each times its factor: float32 [rows, slots, hidden]."""
        return ops.matmul(factors, self.states, False, False)


def _members(segments: Node, slots: Node) -> Node:
    return ops.equal(ops.unsqueeze(segments, constant(1, np.int64)), ops.unsqueeze(slots, constant([0, 2], np.int64)))


def _number(truth: Node) -> Node:
    return ops.convert(truth, "f32")


def _over_tokens(reduce: Callable[..., Node], x: Node) -> Node:
    return reduce(x, constant([2], np.int64), True)


def _positive(x: Node) -> Node:
    return ops.maximum(x, constant(1e-9, np.float32))


def _mean(texts: _Texts) -> Node:
    factors = _number(texts.counted)
    return ops.divide(texts.total(factors), _positive(_over_tokens(ops.reduce_sum, factors)))


def _mean_sqrt_len(texts: _Texts) -> Node:
    factors = _number(texts.counted)
    return ops.divide(texts.total(factors), ops.sqrt(_positive(_over_tokens(ops.reduce_sum, factors))))


def _weighted_mean(texts: _Texts) -> Node:
    place = _number(ops.add(texts.index, constant(1, np.int32)))
    factors = ops.multiply(_number(texts.counted), place)
    return ops.divide(texts.total(factors), _positive(_over_tokens(ops.reduce_sum, factors)))


def _cls(texts: _Texts) -> Node:
    """The first token that counts; a text that is all prompt gives its very first."""
    candidates = ops.select(texts.counted, texts.index, constant(_NO_INDEX, np.int32))
    first = _over_tokens(ops.reduce_min, candidates)
    first = ops.select(ops.equal(first, constant(_NO_INDEX, np.int32)), constant(0, np.int32), first)
    return texts.total(_number(ops.logical_and(texts.all, ops.equal(texts.index, first))))


def _last_token(texts: _Texts) -> Node:
    """The last token that counts; a text that is all prompt gives zeros."""
    last = _over_tokens(ops.reduce_max, ops.select(texts.counted, texts.index, constant(-1, np.int32)))
    return texts.total(_number(ops.logical_and(texts.counted, ops.equal(texts.index, last))))


def _max(texts: _Texts) -> Node:
    """Scattered into the slots rather than compared slot by slot, which would cost slots times the memory."""
    nowhere = ops.shape_of(texts.slots, "i32")
    segments = ops.select(ops.less(texts.counted_segments, constant(0, np.int32)), nowhere, texts.counted_segments)
    shape = ops.shape_of(texts.states)
    places = ops.broadcast(ops.unsqueeze(segments, constant(2, np.int64)), shape)
    axis, one = constant(1, np.int64), constant([1], np.int64)
    num_places = ops.add(ops.shape_of(texts.slots), one)
    rows, hidden = (ops.gather(shape, constant([i], np.int64), constant(0, np.int64)) for i in (0, 2))
    empty = ops.broadcast(constant(-np.inf, np.float32), ops.concat([rows, num_places, hidden], 0))
    highest = ops.scatter_elements_update(empty, places, texts.states, axis, "max", True)
    return ops.slice(highest, constant([0], np.int64), ops.shape_of(texts.slots), one, one)


_MODES: dict[str, Callable[[_Texts], Node]] = {
    "cls": _cls,
    "last_token": _last_token,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len": _mean_sqrt_len,
    "weighted_mean": _weighted_mean,
}


def dense(x: Node, size: int, module: Dense, directory: str) -> Node:
    """One Dense; see `transform`."""
    file = str(Path(directory) / module.weights_file)
    if module.in_features != size:
        raise ModelRefused(f"{file}: in_features is {module.in_features}, but the module before gives {size}.")
    weights = open_weights([file])
    sizes = module.out_features, module.in_features
    y = layers.linear(x, weights, module.name, *sizes, has_bias=module.has_bias)
    if module.is_alone:
        weights.refuse_unused(())
    return layers.activation(y, module.activation, f"{file}: activation_function")


def _normalize(x: Node) -> Node:
    length = ops.reduce_l2(x, constant([-1], np.int64), True)
    return ops.divide(x, ops.maximum(length, constant(1e-12, np.float32)))
