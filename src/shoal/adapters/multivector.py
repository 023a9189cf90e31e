"""A vector for each token: which tokens of a query or a document have one, and raw rows to what the caller asked for.

Texts of the two sides differ: in what stands in front, in their length, and in that short queries are expanded.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from shoal.adapters.base import MultiVectors, Prepared
from shoal.adapters.merging import merge_likes
from shoal.adapters.vectors import Matrix, quantize
from shoal.catalog.spec import MultiVector, Side, TokenMerging
from shoal.errors import InternalError
from shoal.runtimes.base import Arrays
from shoal.types import EmbedOptions

__all__ = ["SideName", "as_side", "finish_multivector", "rows_by_text", "side_of"]

SideName = Literal["query", "document"]


def side_of(options: EmbedOptions) -> SideName:
    """Texts of which nothing is said are documents, as in sentence-transformers."""
    return "query" if options.input_type == "query" else "document"


def as_side(prepared: Prepared, side: Side) -> Prepared:
    """A prepared text with its expansion, and with the tokens marked that have a vector."""
    token_ids, num_keys, expansion = prepared.token_ids, 0, side.expansion
    missing = 0 if expansion is None else max(0, expansion.length - prepared.cost)
    if expansion is not None and missing:
        num_keys = 0 if expansion.is_attended else prepared.cost
        token_ids = np.concatenate([token_ids, np.full(missing, expansion.token_id, np.int32)])
    kept = ~np.isin(token_ids, side.skipped_ids)
    kept[: side.num_skipped] = False
    return msgspec.structs.replace(prepared, token_ids=token_ids, kept=kept, num_keys=num_keys)


def rows_by_text(
    raw: Arrays, head: MultiVector, name: SideName | None, *, normalize: bool | None = None
) -> list[Matrix]:
    """Vectors of each text, float32 [number of kept tokens, dimensions], merged as the model's own modules say.

    Args:
        name: which side the texts are of; None = the first is a query, the others are documents.

    Raises:
        InternalError: a vector is not finite; names the row.
    """
    rows: Matrix = np.asarray(raw["multivector.rows"], np.float32)
    if not np.isfinite(rows).all():
        row = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        raise InternalError(f"The model's vector for row {row} is not finite.", param=f"row {row}")
    if normalize and not head.is_normalized:
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
    texts = np.split(rows, np.cumsum(raw["multivector.lengths"])[:-1])
    merging = head.merging
    if merging is None:
        return texts
    merges = {"query": merging.merges_queries, "document": merging.merges_documents}
    sides = [name or ("document" if place else "query") for place in range(len(texts))]
    return [merge_likes(text, merging) if merges[side] else text for text, side in zip(texts, sides, strict=True)]


def finish_multivector(raw: Arrays, options: EmbedOptions, *, head: MultiVector) -> MultiVectors:
    """Raw rows to what the caller asked for. Merging by `pool_factor` is for documents, as in the reference."""
    side = side_of(options)
    texts = rows_by_text(raw, head, side, normalize=options.normalize)
    if options.pool_factor is not None and side == "document":
        asked = TokenMerging(options.pool_factor)
        texts = [merge_likes(text, asked) for text in texts]
    lengths = np.array([len(text) for text in texts], np.int32)
    rows = np.concatenate([np.empty((0, head.dimensions), np.float32), *texts])
    return MultiVectors(lengths, quantize(rows, options.dtype))
