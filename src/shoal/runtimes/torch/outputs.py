"""How outputs come home: what a head computes of each forward's token states, put back in the order of the items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from shoal.runtimes.base import Arrays, Features
from shoal.runtimes.torch.copies import Fetches, Tensors
from shoal.runtimes.torch.layout import Ints

__all__ = ["Collector", "Finish", "Head", "PerText", "PerToken", "TokenRows"]

Finish = Callable[[torch.Tensor, Tensors], torch.Tensor]
"""Token states [total, hidden] and their part, to float32 [n or total, numbers]: a row a text, or a row a token."""

Places = npt.NDArray[np.int64]


class Collector(Protocol):
    """Takes what was computed in the forwards of one batch, then gives its arrays."""

    def take(self, computed: torch.Tensor, items: Places, lengths: Ints) -> None:
        """Take in a forward.

        Args:
            computed: see `Head.compute`; there may be more rows behind those of these texts.
            items: places in the batch, in the forward's order.
            lengths: tokens of each.
        """
        ...

    def arrays(self) -> Arrays:
        """Once all copies are done."""
        ...


class Head(Protocol):
    """One output of a model.

    Attributes:
        name: of the output.
    """

    name: str

    def compute(self, states: torch.Tensor, part: Tensors) -> torch.Tensor:
        """From token states, with shapes that follow from the part's alone, so that a CUDA graph can record it."""
        ...

    def collector(self, features: Features, fetches: Fetches) -> Collector: ...


class PerText:
    """A row a text: vectors, logits of labels."""

    def __init__(self, name: str, width: int, finish: Finish) -> None:
        self.name = name
        self.compute = finish
        self._width = width

    def collector(self, features: Features, fetches: Fetches) -> Collector:
        return _TextRows(self.name, np.empty((features.num_items, self._width), np.float32), fetches)


class _TextRows:
    def __init__(self, name: str, rows: npt.NDArray[np.float32], fetches: Fetches) -> None:
        self._name = name
        self._rows = rows
        self._fetches = fetches
        self._parts: list[tuple[Places, torch.Tensor]] = []

    def take(self, computed: torch.Tensor, items: Places, lengths: Ints) -> None:
        self._parts.append((items, self._fetches.start(computed[: len(items)])))

    def arrays(self) -> Arrays:
        for items, part in self._parts:
            self._rows[items] = part.numpy()
        return {self._name: self._rows}


class PerToken:
    """A row for each token that is kept, or for each: vectors of tokens, logits of their labels.

    Args:
        name: of the output and its part, such as `multivector.rows`.
    """

    def __init__(self, name: str, width: int, finish: Finish) -> None:
        self.name = name.partition(".")[0]
        self.compute = finish
        self._part = name
        self._width = width

    def collector(self, features: Features, fetches: Fetches) -> Collector:
        kept = features.kept
        if kept is None:  # a vector costs much, so only those asked for are made
            kept = np.full(features.num_tokens, self.name != "multivector")
        return _KeptRows(self._part, kept, TokenRows(features, self._width, fetches))


class TokenRows:
    """A row a token of each forward, put back in the order of the batch's tokens."""

    def __init__(self, features: Features, width: int, fetches: Fetches) -> None:
        self.lengths = features.lengths
        self._begins = np.cumsum(features.lengths, dtype=np.int64) - features.lengths
        self._width = width
        self._fetches = fetches
        self._parts: list[tuple[Places, torch.Tensor]] = []

    def take(self, computed: torch.Tensor, items: Places, lengths: Ints) -> None:
        """See `Collector.take`."""
        counts = lengths.astype(np.int64)
        index = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        places = np.repeat(self._begins[items], counts) + index
        self._parts.append((places, self._fetches.start(computed[: len(places)])))

    def rows(self) -> npt.NDArray[np.float32]:
        """[total_tokens, width], once all copies are done."""
        rows = np.empty((int(self.lengths.sum()), self._width), np.float32)
        for places, part in self._parts:
            rows[places] = part.numpy()
        return rows


class _KeptRows:
    def __init__(self, name: str, kept: npt.NDArray[np.bool_], tokens: TokenRows) -> None:
        self._name = name
        self._kept = kept
        self._tokens = tokens
        self.take = tokens.take

    def arrays(self) -> Arrays:
        items = np.repeat(np.arange(len(self._tokens.lengths)), self._tokens.lengths)
        lengths = np.bincount(items[self._kept], minlength=len(self._tokens.lengths))
        output = self._name.partition(".")[0]
        return {f"{output}.lengths": lengths.astype(np.int32), self._name: self._tokens.rows()[self._kept]}
