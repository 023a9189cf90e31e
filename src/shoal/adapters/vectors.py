"""Raw vectors to what the caller asked for: cut, renormalise, quantise. Pure NumPy over whole matrices.

Order matters: cut first, then renormalise, then quantise. A vector that was cut after it was normalised has no unit
length any more, and a similarity search over such vectors is silently wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.adapters.base import Vectors
from shoal.catalog.spec import ModelSpec
from shoal.errors import InternalError, InvalidRequest
from shoal.types import DType, EmbedOptions

__all__ = ["Matrix", "check_dimensions", "finish_vectors", "mean_of_windows", "quantize"]

Matrix = npt.NDArray[np.float32]


def check_dimensions(spec: ModelSpec, dimensions: int | None) -> None:
    """Refuse a length that the model was not trained to be cut to.

    A matryoshka model may be cut to any length up to its own: training at a few nested lengths orders the numbers by
    weight, and in between the quality is in between. The model's own length is always right.

    Raises:
        InvalidRequest: names the value and what is allowed.
    """
    if dimensions is None or dimensions == spec.dimensions:
        return
    if not spec.matryoshka_dimensions:
        raise InvalidRequest(
            f"dimensions is {dimensions}; {spec.id} gives {spec.dimensions} and was not trained to be cut shorter.",
            param="dimensions",
            hint="Leave dimensions out.",
        )
    if not 1 <= dimensions <= spec.dimensions:
        raise InvalidRequest(
            f"dimensions is {dimensions}; {spec.id} takes 1 to {spec.dimensions} "
            f"(trained at {', '.join(map(str, spec.matryoshka_dimensions))}).",
            param="dimensions",
        )


def finish_vectors(raw: npt.NDArray[Any], options: EmbedOptions, *, is_normalized: bool) -> Vectors:
    """Rows as the model gave them to rows as the reply holds them.

    Args:
        raw: float32 [num_items, dimensions].
        is_normalized: whether the model's own last module normalises. Then `normalize=False` only means that a cut
            vector is left as it is: a model's own module is never undone.

    Raises:
        InternalError: a row is not finite or has no length; names the row.
    """
    vectors: Matrix = np.asarray(raw, np.float32)
    lengths = _sound_lengths(vectors)
    wants_unit = is_normalized if options.normalize is None else options.normalize
    is_cut = options.dimensions is not None and options.dimensions < vectors.shape[1]
    if is_cut:
        vectors = vectors[:, : options.dimensions]
        lengths = _sound_lengths(vectors)
    if wants_unit and (is_cut or not is_normalized):
        vectors = (vectors / lengths[:, None]).astype(np.float32)
    return quantize(vectors, options.dtype)


def quantize(vectors: Matrix, dtype: DType) -> Vectors:
    """Rows as the reply stores them."""
    data, scales = _QUANTIZERS[dtype](vectors)
    return Vectors(np.ascontiguousarray(data), vectors.shape[1], scales)


def mean_of_windows(
    raw: npt.NDArray[Any], *, weights: Sequence[int], starts: Sequence[int], is_normalized: bool
) -> Matrix:
    """One vector a text of those of its windows: sum(weight * vector) / sum(weight), L2-normalised if the model's are.

    A text that is one window keeps its vector to the bit.

    Args:
        raw: float32 [num_windows, dimensions].
        weights: one a window.
        starts: first window of each text.

    Raises:
        InternalError: a vector is not finite, or a mean has no length.
    """
    vectors = np.asarray(raw, np.float32)
    shares = np.asarray(weights, np.float64)
    means = np.add.reduceat(vectors * shares[:, None], starts) / np.add.reduceat(shares, starts)[:, None]
    if is_normalized:
        means /= _sound_lengths(means)[:, None]
    is_alone = np.diff([*starts, len(vectors)]) == 1
    return np.where(is_alone[:, None], vectors[starts], means).astype(np.float32)


def _sound_lengths(vectors: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
    """L2 length of each row; in float64, where no square of a float32 overflows or vanishes.

    Raises:
        InternalError: a row is not finite or has no length.
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    if not np.isfinite(lengths).all() or not lengths.all():
        row = int(np.flatnonzero(~np.isfinite(lengths) | (lengths == 0))[0])
        what = "has no length" if lengths[row] == 0 else "is not finite"
        raise InternalError(f"The model's vector for row {row} {what}.", param=f"row {row}")
    return np.asarray(lengths, np.float64)


def _as_float32(vectors: Matrix) -> tuple[npt.NDArray[Any], None]:
    return vectors.astype("<f4", copy=False), None


def _as_float16(vectors: Matrix) -> tuple[npt.NDArray[Any], None]:
    limit = float(np.finfo(np.float16).max)
    return np.clip(vectors, -limit, limit).astype("<f2"), None


def _as_int8(vectors: Matrix) -> tuple[npt.NDArray[Any], Matrix]:
    scales = np.maximum(np.abs(vectors).max(axis=1, initial=0) / np.float32(127), np.finfo(np.float32).tiny)
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales


def _as_binary(vectors: Matrix) -> tuple[npt.NDArray[Any], Matrix]:
    return np.packbits(vectors > 0, axis=1), np.abs(vectors).mean(axis=1)


def _as_signed_binary(vectors: Matrix) -> tuple[npt.NDArray[Any], Matrix]:
    packed, scales = _as_binary(vectors)
    return (packed ^ 0x80).view(np.int8), scales


_QUANTIZERS: dict[DType, Any] = {
    "float32": _as_float32,
    "float16": _as_float16,
    "int8": _as_int8,
    "binary": _as_binary,
    "signed_binary": _as_signed_binary,
}
