"""Matrices as they travel: their bytes to NumPy, and to float32. No HTTP, no structs of the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.errors import InternalError
from shoal.types import DType

__all__ = ["as_float32", "matrix_of"]

_STORED: dict[DType, str] = {"float32": "<f4", "float16": "<f2", "int8": "|i1", "binary": "|u1"}


def matrix_of(data: bytes, dtype: DType, rows: int, dimensions: int) -> npt.NDArray[Any]:
    """A row a vector, without copying: [rows, dimensions], for binary uint8 [rows, ceil(dimensions / 8)].

    Raises:
        InternalError: the data has another size.
    """
    columns = -(-dimensions // 8) if dtype == "binary" else dimensions
    kind = np.dtype(_STORED[dtype])
    if rows * columns * kind.itemsize != len(data):
        raise InternalError(f"The server sent {len(data)} bytes for a {dtype} matrix of {rows} x {dimensions}.")
    return np.frombuffer(data, dtype=kind).reshape(rows, columns)


def as_float32(
    stored: npt.NDArray[Any], dtype: DType, dimensions: int, scales: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """float32 [rows, dimensions]: int8 and binary are multiplied out with their scales."""
    if dtype in ("float32", "float16"):
        return stored.astype(np.float32, copy=False)
    if dtype == "binary":
        stored = np.unpackbits(stored, axis=1, count=dimensions).astype(np.int8) * 2 - 1
    return stored.astype(np.float32) * scales[:, None]
