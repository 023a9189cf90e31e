"""How alike two sets of vectors are for searching: shared neighbours, and nDCG where it is known what is relevant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.bench.lines import read_lines
from shoal.bench.targets import Vectors
from shoal.errors import InvalidRequest

__all__ = ["Collection", "ndcg", "overlap", "read_collection", "top_k"]

_BLOCK = 512


class Collection(msgspec.Struct, frozen=True):
    """Queries with documents that are known to be relevant: {place of the query: {place of the document: gain}}.

    Attributes:
        num_unknown: judgements of something relevant that name a query or document which is not there, and count not.
    """

    documents: list[str]
    queries: list[str]
    gains: dict[int, dict[int, float]]
    num_unknown: int = 0


def top_k(queries: Vectors, documents: Vectors, k: int, *, is_self: bool = False) -> npt.NDArray[np.int64]:
    """Places of the k documents most alike each query by cosine, best first: int64 [queries, k].

    Args:
        is_self: the queries are the documents, and none is its own neighbour.
    """
    left, right = _unit(queries), _unit(documents)
    rows = []
    for start in range(0, len(left), _BLOCK):
        scores = left[start : start + _BLOCK] @ right.T
        if is_self:
            places = np.arange(len(scores))
            scores[places, places + start] = -np.inf
        rows.append(np.argsort(-scores, axis=1, kind="stable")[:, :k])
    return np.concatenate(rows)


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-30), np.float32)


def overlap(one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> float:
    """Mean share of neighbours that both have, 0 to 1."""
    shared = [len(np.intersect1d(left, right)) for left, right in zip(one, other, strict=True)]
    return float(np.mean(shared) / one.shape[1])


def ndcg(found: npt.NDArray[np.int64], gains: Mapping[int, Mapping[int, float]]) -> float:
    """Mean normalised discounted cumulative gain of the rankings `found`, of queries with something relevant.

    Gains are discounted by log2(rank + 1), as trec_eval does it.
    """
    discounts = 1 / np.log2(np.arange(2, found.shape[1] + 2))
    values = []
    for query, relevant in gains.items():
        reached = np.array([relevant.get(int(place), 0.0) for place in found[query]])
        best = np.sort(np.array(list(relevant.values())))[::-1][: found.shape[1]]
        values.append(float(reached @ discounts) / float(best @ discounts[: len(best)]))
    return float(np.mean(values))


def read_collection(
    documents: Sequence[tuple[str, str]], queries: Sequence[tuple[str, str]], qrels: Path
) -> Collection:
    """Documents and queries as (id, text), and a qrels file in BEIR's form: query-id, corpus-id, score with a header.

    Raises:
        InvalidRequest: a line cannot be read, or nothing in it is about these queries and documents.
    """
    query_places = {id: place for place, (id, _) in enumerate(queries)}
    document_places = {id: place for place, (id, _) in enumerate(documents)}
    gains: dict[int, dict[int, float]] = {}
    num_unknown = 0
    for number, line in enumerate(read_lines(qrels)[1:], 2):
        cells = line.split("\t")
        try:
            query, document, gain = cells[0], cells[1], float(cells[2])
            if not math.isfinite(gain):
                raise ValueError("no gain")
        except (IndexError, ValueError):
            raise InvalidRequest(f"Line {number} of {qrels} is not query, document and score with tabs.") from None
        is_known = query in query_places and document in document_places
        num_unknown += gain > 0 and not is_known
        if gain > 0 and is_known:
            gains.setdefault(query_places[query], {})[document_places[document]] = gain
    if not gains:
        raise InvalidRequest(f"{qrels} is about none of these queries and documents.")
    return Collection([text for _, text in documents], [text for _, text in queries], gains, num_unknown)
