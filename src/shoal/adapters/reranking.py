"""Reranking: a query and documents, judged as pairs by a cross-encoder, or embedded apart and compared.

The query is tokenised once a chunk. It is never cut: only documents are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shoal.adapters.base import Finished, Prepared, Scores
from shoal.adapters.embedding import OVERFLOW_OF, Embedding
from shoal.adapters.texts import Texts
from shoal.adapters.vectors import finish_vectors
from shoal.catalog.spec import Classifier, ModelSpec
from shoal.errors import InternalError
from shoal.runtimes.base import Arrays
from shoal.types import EmbedOptions, RerankOptions

__all__ = ["BiEncoder", "CrossEncoder", "sound_scores"]

_AS_QUERY = EmbedOptions(input_type="query", overflow="error")


class CrossEncoder:
    """Ranks with a classifier over pairs. See `adapters.base.Adapter`."""

    def __init__(self, texts: Texts, classifier: Classifier) -> None:
        self._texts = texts
        self._classifier = classifier

    def check(self, options: RerankOptions) -> None:
        """Any options will do."""

    def prepare(self, items: Sequence[str | list[int]], options: RerankOptions, first_item: int) -> list[Prepared]:
        query = self._texts.encode_field(options.query, "query")
        self._texts.require_room(query, "query")
        return [
            self._texts.pair(query, ids, number, truncate=options.truncate, side=options.truncation_side)
            for number, ids in enumerate(self._texts.encode(items, "", first_item), first_item)
        ]

    def finish(self, raw: Arrays, options: RerankOptions, runs: Sequence[Prepared]) -> tuple[Finished, ...]:
        logits = np.asarray(raw["logits"], np.float32)
        scores = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        if not options.raw_scores and self._classifier.activation == "sigmoid":
            scores = _sigmoid(scores)
        return (sound_scores(scores),)


class BiEncoder:
    """Ranks by the cosine of two dense vectors. The query runs in front of each chunk's documents."""

    def __init__(self, spec: ModelSpec, embedding: Embedding) -> None:
        self._spec = spec
        self._embedding = embedding

    def check(self, options: RerankOptions) -> None:
        """Any options will do: a cosine has no raw form, so `raw_scores` changes nothing."""

    def prepare(self, items: Sequence[str | list[int]], options: RerankOptions, first_item: int) -> list[Prepared]:
        as_document = EmbedOptions(
            input_type="document", overflow=OVERFLOW_OF[options.truncate], truncation_side=options.truncation_side
        )
        query = self._embedding.prepare_shared(options.query, _AS_QUERY, "query", "Change the query: it is never cut.")
        return [query, *self._embedding.prepare(items, as_document, first_item)]

    def finish(self, raw: Arrays, options: RerankOptions, runs: Sequence[Prepared]) -> tuple[Finished, ...]:
        unit = EmbedOptions(normalize=True)
        vectors = finish_vectors(raw["dense"], unit, is_normalized=self._spec.is_normalized).data
        return (sound_scores(vectors[1:] @ vectors[0]),)


def _sigmoid(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)


def sound_scores(scores: npt.NDArray[np.generic]) -> Scores:
    """Raises:
    InternalError: a score is not finite; names the row.
    """
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise InternalError(f"The model's score for row {row} is not finite.", param=f"row {row}")
    return Scores(np.ascontiguousarray(scores, "<f4"))
