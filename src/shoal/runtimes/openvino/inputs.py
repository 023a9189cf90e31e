"""What a graph is fed: small int32 arrays over rows of packed texts. A graph declares what it uses, no more.

This file ties the graph's side (parameters) to nothing of the batch's side; `session` fills them by name.
"""

from __future__ import annotations

import numpy as np
from openvino import opset15 as ops

from shoal.errors import ModelRefused
from shoal.runtimes.openvino.layers import Node, constant
from shoal.runtimes.openvino.packing import MAX_SHARED_WIDTH, row_width

__all__ = ["Inputs"]


class Inputs:
    """Inputs of a graph under construction, each made when first asked for.

    Attributes:
        max_length: tokens of the longest text that may come.
        hides_tokens: whether some tokens are looked at by none (see `Features.num_keys`).
        pools_firsts: whether of the last layer's states only each text's first is asked for.
        parameters: those asked for, by name.
        padding_id: set by `positions`: the id that positions skip; None = they count every token.
        blind: reaches of masks in which a token may see nothing, and for which nobody asked `sees`.
        is_narrow: set by `askers`: token states are [rows, slots, hidden], each text's first only.
    """

    def __init__(self, max_length: int, *, hides_tokens: bool = False, pools_firsts: bool = False) -> None:
        self.max_length = max_length
        self.hides_tokens = hides_tokens
        self.pools_firsts = pools_firsts
        self.is_narrow = False
        self.parameters: dict[str, Node] = {}
        self.padding_id: int | None = None
        self.blind: set[int] = set()

    def _parameter(self, name: str, num_axes: int = 2) -> Node:
        if name not in self.parameters:
            node = ops.parameter([-1] * num_axes, np.int32, name)
            node.output(0).set_names({name})
            self.parameters[name] = node
        return self.parameters[name]

    @property
    def max_width(self) -> int:
        """Tokens of the widest row: that of the longest text, or one that many short ones share."""
        return max(row_width(self.max_length), MAX_SHARED_WIDTH)

    @property
    def token_ids(self) -> Node:
        """[rows, width]"""
        return self._parameter("token_ids")

    @property
    def token_type_ids(self) -> Node:
        """[rows, width]"""
        return self._parameter("token_type_ids")

    @property
    def segments(self) -> Node:
        """[rows, width]: which text of its row a token belongs to, from 0; -1 for padding."""
        return self._parameter("segments")

    @property
    def pooled_segments(self) -> Node:
        """[rows, width]: as `segments`, but -1 too for tokens that pooling leaves out."""
        return self._parameter("pooled_segments")

    @property
    def key_segments(self) -> Node:
        """[rows, width]: as `segments`, but -2 for tokens that none looks at."""
        return self._parameter("key_segments") if self.hides_tokens else self.segments

    @property
    def slots(self) -> Node:
        """[slots]: 0, 1, 2, ..., one for each text that a row may hold."""
        return self._parameter("slots", 1)

    @property
    def index(self) -> Node:
        """[rows, width]: which token of its text, from 0."""
        return self._parameter("index")

    def positions(self, padding_id: int | None = None) -> Node:
        """[rows, width]: rows of the position table.

        With a `padding_id` they are fairseq's (RoBERTa, MPNet): padding_id + 1 for a text's first token, and a literal
        padding token inside the text stands at padding_id without being counted.
        """
        if padding_id is None:
            return self.index
        if self.padding_id not in (None, padding_id):
            raise ModelRefused(f"Two padding ids for positions: {self.padding_id} and {padding_id}.")
        self.padding_id = padding_id
        return self._parameter("positions")

    def mask(self, *, is_causal: bool = False, reach: int | None = None) -> Node:
        """float32 [rows, 1, width, width]: 0 where a token looks, -inf elsewhere; padding sees padding only.

        Args:
            is_causal: a token looks at none behind it in its text.
            reach: the largest distance that a token looks; None = its whole text.
        """
        looks = self._looks(is_causal, reach)
        zero, minus_infinity = constant(0, np.float32), constant(-np.inf, np.float32)
        if self.hides_tokens and reach is not None:
            # A token whose window holds none to look at: its row must not be empty, `sees` takes it out.
            self.blind.add(reach)
            looks = ops.logical_or(looks, ops.logical_not(_any(looks)))
        return ops.unsqueeze(ops.select(looks, zero, minus_infinity), constant(1, np.int64))

    def askers(self, states: Node, mask: Node, *, is_last: bool) -> tuple[Node | None, Node]:
        """Of a layer's tokens those whose states are asked for, None = all of them; and their part of the mask.

        In the last layer that may be each text's first token: its queries, and all that follows, are few then.

        Args:
            states: [rows, width, hidden].
            mask: [rows, 1 or num_heads, width, width].
            is_last: whether it is the last layer.
        """
        if not (is_last and self.pools_firsts):
            return None, mask
        self.is_narrow = True
        firsts = self._parameter("firsts")
        return ops.gather(states, firsts, constant(1), 1), ops.gather(mask, firsts, constant(2), 1)

    def sees(self, *, reach: int | None) -> Node | None:
        """float32 [rows, width, 1]: 1 for tokens that look at any, 0 for others; None if all do."""
        if not self.hides_tokens or reach is None:
            return None
        self.blind.discard(reach)
        return ops.convert(_any(self._looks(False, reach)), "f32")

    def _looks(self, is_causal: bool, reach: int | None) -> Node:
        """bool [rows, width, width]: whether a token looks at another."""
        rows, columns = _pairs(self.segments, self.key_segments)
        looks = ops.equal(rows, columns)
        if is_causal or reach is not None:
            # Within a text the order in the row is the order in the text; padding has index 0 throughout.
            rows, columns = _pairs(self.index, self.index)
            if is_causal:
                looks = ops.logical_and(looks, ops.less_equal(columns, rows))
            if reach is not None:
                distance = ops.absolute(ops.subtract(rows, columns))
                looks = ops.logical_and(looks, ops.less_equal(distance, constant(reach, np.int32)))
        return looks


def _pairs(rows: Node, columns: Node) -> tuple[Node, Node]:
    """Two of [rows, width] as a column and as a row of [rows, width, width]."""
    return ops.unsqueeze(rows, constant(2, np.int64)), ops.unsqueeze(columns, constant(1, np.int64))


def _any(looks: Node) -> Node:
    """bool [rows, width, 1]"""
    return ops.reduce_logical_or(looks, constant([2], np.int64), True)
