"""Raw sparse vectors to what the caller asked for: small weights left out, the largest kept. Pure NumPy."""

from __future__ import annotations

import numpy as np

from shoal.adapters.base import SparseVectors
from shoal.errors import InternalError
from shoal.runtimes.base import Arrays
from shoal.types import EmbedOptions

__all__ = ["finish_sparse"]


def finish_sparse(raw: Arrays, options: EmbedOptions) -> SparseVectors:
    """Prune each vector.

    Args:
        raw: `sparse.lengths`, `sparse.indices`, `sparse.values`, see `runtimes.base.Arrays`.

    Raises:
        InternalError: a weight is not finite; names the row.
    """
    lengths, indices, values = (raw[f"sparse.{part}"] for part in ("lengths", "indices", "values"))
    rows = np.repeat(np.arange(len(lengths)), lengths)
    if not np.isfinite(values).all():
        row = int(rows[~np.isfinite(values)][0])
        raise InternalError(f"The model's sparse vector for row {row} is not finite.", param=f"row {row}")
    keeps = values > options.threshold
    if options.top_k is not None:
        # Largest first within each row: an entry's place there is its rank.
        order = np.lexsort((indices, -values, rows))
        starts = np.cumsum(lengths) - lengths
        ranks = np.empty(len(values), np.int64)
        ranks[order] = np.arange(len(values)) - np.repeat(starts, lengths)
        keeps &= ranks < options.top_k
    kept = np.bincount(rows[keeps], minlength=len(lengths)).astype(np.int32)
    return SparseVectors(kept, indices[keeps].astype("<i4"), values[keeps].astype("<f4"))
