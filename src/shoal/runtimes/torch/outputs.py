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

__all__ = ["Collector", "Finish", "Head", "PerText"]

Finish = Callable[[torch.Tensor, Tensors], torch.Tensor]
"""Token states [total, hidden] and the part they belong to, to float32 [n, numbers]: a row a text."""

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
