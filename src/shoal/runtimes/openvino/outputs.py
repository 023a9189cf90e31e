"""What a run gives, row by row and slot by slot, put back in the order of the items. One collector an output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shoal.catalog.spec import Sparse, TokenWeights
from shoal.runtimes.base import Arrays, Features
from shoal.runtimes.openvino.packing import Rows

__all__ = ["Collector", "Flat", "Kept", "Ragged", "Tokens", "Weighed", "collectors"]

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


class Kept:
    """Rows of the tokens that are kept: output [rows, width, dimensions]."""

    def __init__(self, features: Features) -> None:
        ends = np.cumsum(features.lengths)
        none = np.zeros(features.num_tokens, np.bool_)
        self._kept = np.split(none if features.kept is None else features.kept, ends[:-1])
        self._rows: list[Floats | None] = [None] * features.num_items
        self._dimensions = 0

    def take(self, output: Floats, rows: Rows, lengths: npt.NDArray[np.int32]) -> None:
        self._dimensions = output.shape[-1]
        for item, row, start in zip(rows.items, rows.rows, rows.starts, strict=True):
            self._rows[item] = output[row, start : start + lengths[item]][self._kept[item]]

    def arrays(self) -> Arrays:
        rows = [row for row in self._rows if row is not None]
        return {
            "multivector.lengths": np.array([len(row) for row in rows], np.int32),
            "multivector.rows": np.concatenate(rows) if rows else np.empty((0, self._dimensions), np.float32),
        }


class Tokens:
    """Rows of all tokens: output [rows, width, numbers], named `part` of the ragged output `name`."""

    def __init__(self, name: str, part: str, num_items: int) -> None:
        self._name = name
        self._part = part
        self._rows: list[Floats] = [np.empty((0, 0), np.float32)] * num_items

    def take(self, output: Floats, rows: Rows, lengths: npt.NDArray[np.int32]) -> None:
        for item, row, start in zip(rows.items, rows.rows, rows.starts, strict=True):
            self._rows[item] = output[row, start : start + lengths[item]].copy()

    def arrays(self) -> Arrays:
        rows = np.concatenate(self._rows) if self._rows else np.empty((0, 0), np.float32)
        lengths = np.array([len(of_item) for of_item in self._rows], np.int32)
        return {f"{self._name}.lengths": lengths, f"{self._name}.{self._part}": rows}


class _Sparse:
    """Entries of each text, by place."""

    def __init__(self, num_items: int) -> None:
        self._indices: list[npt.NDArray[np.int32]] = [np.empty(0, np.int32)] * num_items
        self._values: list[Floats] = [np.empty(0, np.float32)] * num_items

    def put(self, item: int, indices: npt.NDArray[Any], values: Floats) -> None:
        self._indices[item], self._values[item] = indices.astype(np.int32), values

    def arrays(self) -> Arrays:
        none: Any = np.empty(0, np.int32)
        return {
            "sparse.lengths": np.array([len(indices) for indices in self._indices], np.int32),
            "sparse.indices": np.concatenate([none, *self._indices]),
            "sparse.values": np.concatenate([none.astype(np.float32), *self._values]),
        }


class Weighed(_Sparse):
    """Weights above zero of each text's own tokens, the largest of each: output [rows, width, 1]."""

    def __init__(self, head: TokenWeights, features: Features) -> None:
        super().__init__(features.num_items)
        self._excluded = np.array(head.excluded_ids, np.int32)
        self._ids = np.split(features.token_ids, np.cumsum(features.lengths)[:-1])

    def take(self, output: Floats, rows: Rows, lengths: npt.NDArray[np.int32]) -> None:
        for item, row, start in zip(rows.items, rows.rows, rows.starts, strict=True):
            weights = output[row, start : start + lengths[item], 0]
            counts = (weights > 0) & ~np.isin(self._ids[item], self._excluded)
            indices, places = np.unique(self._ids[item][counts], return_inverse=True)
            largest = np.zeros(len(indices), np.float32)
            np.maximum.at(largest, places, weights[counts])
            self.put(item, indices, largest)


class Ragged(_Sparse):
    """Weights above zero of each text: output [rows, width, vocabulary], logits.

    Pooled here, text by text: as a graph's output it would take the vocabulary's size for every slot of a row, most of
    which hold no text. The logarithm grows with its logit, so the largest logit is taken first, and a logarithm of that
    alone.
    """

    def __init__(self, head: Sparse, num_items: int) -> None:
        super().__init__(num_items)
        self._head = head

    def take(self, output: Floats, rows: Rows, lengths: npt.NDArray[np.int32]) -> None:
        for item, row, start in zip(rows.items, rows.rows, rows.starts, strict=True):
            logits = output[row, start : start + lengths[item]]
            weights = self._weights(logits)
            indices = np.flatnonzero(weights > 0)
            self.put(item, indices, weights[indices])

    def _weights(self, logits: Floats) -> Floats:
        if self._head.pooling == "max":
            return self._logarithms(logits.max(axis=0))
        return np.asarray(self._logarithms(logits).sum(axis=0), np.float32)

    def _logarithms(self, logits: Floats) -> Floats:
        x = np.maximum(logits, 0)
        for _ in range(self._head.num_logarithms):
            x = np.log1p(x)
        return x


def collectors(names: Sequence[str], features: Features, sparse: Sparse | TokenWeights | None) -> dict[str, Collector]:
    """One for each output of a graph, by name.

    Args:
        sparse: how the output `sparse` becomes sparse vectors.
    """
    made: dict[str, Collector] = {name: Flat(name, features.num_items) for name in names}
    if "multivector" in made:
        made["multivector"] = Kept(features)
    if "tags" in made:
        made["tags"] = Tokens("tags", "logits", features.num_items)
    if isinstance(sparse, Sparse):
        made["sparse"] = Ragged(sparse, features.num_items)
    if isinstance(sparse, TokenWeights):
        made["sparse"] = Weighed(sparse, features)
    return made
