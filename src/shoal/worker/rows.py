"""The raw rows of one work, as they come in batch by batch, put together in the order of what was prepared."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.runtimes.base import Arrays

__all__ = ["Rows"]


class Rows:
    """Rows of `num_rows` runs; flat outputs and ragged ones, see `runtimes.base.Arrays`.

    Attributes:
        num_missing: rows that have not come yet.
    """

    def __init__(self, num_rows: int) -> None:
        self.num_missing = num_rows
        self._num_rows = num_rows
        self._flat: Arrays = {}
        self._pieces: dict[str, list[npt.NDArray[Any]]] = {}

    def put(self, places: list[int], arrays: Arrays, rows: list[int]) -> None:
        """Store rows of a batch's outputs at `places`."""
        for name, array in arrays.items():
            output, _, part = name.partition(".")
            if part and part != "lengths":
                self._put_ragged(name, places, array, arrays[f"{output}.lengths"], rows)
                continue
            if name not in self._flat:
                self._flat[name] = np.empty((self._num_rows, *array.shape[1:]), array.dtype)
            self._flat[name][places] = array[rows]
        self.num_missing -= len(rows)

    def arrays(self) -> Arrays:
        """All rows in order, once none is missing."""
        return self._flat | {name: np.concatenate(pieces) for name, pieces in self._pieces.items()}

    def _put_ragged(
        self, name: str, places: list[int], array: npt.NDArray[Any], lengths: npt.NDArray[Any], rows: list[int]
    ) -> None:
        pieces = self._pieces.setdefault(name, [array[:0]] * self._num_rows)
        ends = np.cumsum(lengths)
        for place, row in zip(places, rows, strict=True):
            pieces[place] = array[ends[row] - lengths[row] : ends[row]]
