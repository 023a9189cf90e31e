"""Similarity: dense vectors of texts compared with that of one source text, as the model declares. Pure NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shoal.adapters.base import Finished, Prepared
from shoal.adapters.embedding import OVERFLOW_OF, Embedding
from shoal.adapters.reranking import sound_scores
from shoal.adapters.vectors import Matrix, finish_vectors
from shoal.catalog.spec import ModelSpec
from shoal.runtimes.base import Arrays
from shoal.types import EmbedOptions, SimilarityFunction, SimilarityOptions

__all__ = ["Similarity"]


class Similarity:
    """See `adapters.base.Adapter`. The source runs in front of each chunk's texts, and is embedded as they are."""

    def __init__(self, spec: ModelSpec, embedding: Embedding) -> None:
        self._spec = spec
        self._embedding = embedding

    def check(self, options: SimilarityOptions) -> None:
        self._embedding.check(_as_embed(options))

    def prepare(self, items: Sequence[str | list[int]], options: SimilarityOptions, first_item: int) -> list[Prepared]:
        embed = _as_embed(options)
        source = self._embedding.prepare_shared(options.source, embed, "source")
        return [source, *self._embedding.prepare(items, embed, first_item)]

    def finish(self, raw: Arrays, options: SimilarityOptions, runs: Sequence[Prepared]) -> tuple[Finished, ...]:
        finished = finish_vectors(raw["dense"], EmbedOptions(), is_normalized=self._spec.is_normalized)
        vectors = np.asarray(finished.data, np.float32)
        scores = _FUNCTIONS[self._spec.similarity](vectors[1:], vectors[0])
        return (sound_scores(scores),)


def _as_embed(options: SimilarityOptions) -> EmbedOptions:
    return EmbedOptions(
        overflow=OVERFLOW_OF[options.truncate],
        truncation_side=options.truncation_side,
        prompt_name=options.prompt_name,
        prompt=options.prompt,
    )


def _cosine(vectors: Matrix, source: Matrix) -> Matrix:
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(source)
    return np.asarray((vectors @ source) / lengths, np.float32)


def _dot(vectors: Matrix, source: Matrix) -> Matrix:
    return np.asarray(vectors @ source, np.float32)


def _euclidean(vectors: Matrix, source: Matrix) -> Matrix:
    return np.asarray(-np.linalg.norm(vectors - source, axis=1), np.float32)


def _manhattan(vectors: Matrix, source: Matrix) -> Matrix:
    return np.asarray(-np.abs(vectors - source).sum(axis=1), np.float32)


_FUNCTIONS: dict[SimilarityFunction, Callable[[Matrix, Matrix], Matrix]] = {
    "cosine": _cosine,
    "dot": _dot,
    "euclidean": _euclidean,
    "manhattan": _manhattan,
}
