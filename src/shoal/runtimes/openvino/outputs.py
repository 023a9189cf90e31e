"""What a run gives, row by row and slot by slot, put back in the order of the items. One collector an output."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shoal.catalog.spec import Sparse
from shoal.runtimes.base import Arrays
from shoal.runtimes.openvino.packing import Rows

__all__ = ["Collector", "Flat", "Ragged"]

Floats = npt.NDArray[np.float32]


class Collector(Protocol):
    """Takes the runs of one batch, then gives its arrays."""

    def take(self, output: Floats, rows: Rows, lengths: npt.NDArray[np.int32]) -> None:
        """Take in a run's output; it is overwritten afterwards. `lengths` are those of all texts of the batch."""
        ...

    def arrays(self) -> Arrays: ...


class Flat:
    """A row an item: output [rows, slots, numbers]."""

    def __init__(self, name: str, num_items: int) -> None:
        self._name = name
        self._num_items = num_items
        self._rows: Floats | None = None

    def take(self, output: Floats, rows: Rows, lengths: npt.NDArray[np.int32]) -> None:
        if self._rows is None:
            self._rows = np.empty((self._num_items, output.shape[-1]), np.float32)
        self._rows[rows.items] = output[rows.rows, rows.slots]

    def arrays(self) -> Arrays:
        return {self._name: np.empty((0, 0), np.float32) if self._rows is None else self._rows}


class Ragged:
    """Weights above zero of each text: output [rows, width, vocabulary], logits.

    Pooled here, text by text: as a graph's output it would take the vocabulary's size for every slot of a row, most of
    which hold no text. The logarithm grows with its logit, so the largest logit is taken first, and a logarithm of that
    alone.
    """

    def __init__(self, head: Sparse, num_items: int) -> None:
        self._head = head
        self._indices: list[npt.NDArray[np.int32]] = [np.empty(0, np.int32)] * num_items
        self._values: list[Floats] = [np.empty(0, np.float32)] * num_items

    def take(self, output: Floats, rows: Rows, lengths: npt.NDArray[np.int32]) -> None:
        for item, row, start in zip(rows.items, rows.rows, rows.starts, strict=True):
            logits = output[row, start : start + lengths[item]]
            weights = self._weights(logits)
            indices = np.flatnonzero(weights > 0)
            self._indices[item] = indices.astype(np.int32)
            self._values[item] = weights[indices]

    def arrays(self) -> Arrays:
        none: Any = np.empty(0, np.int32)
        return {
            "sparse.lengths": np.array([len(indices) for indices in self._indices], np.int32),
            "sparse.indices": np.concatenate([none, *self._indices]),
            "sparse.values": np.concatenate([none.astype(np.float32), *self._values]),
        }

    def _weights(self, logits: Floats) -> Floats:
        if self._head.pooling == "max":
            return self._logarithms(logits.max(axis=0))
        return np.asarray(self._logarithms(logits).sum(axis=0), np.float32)

    def _logarithms(self, logits: Floats) -> Floats:
        x = np.maximum(logits, 0)
        for _ in range(self._head.num_logarithms):
            x = np.log1p(x)
        return x
