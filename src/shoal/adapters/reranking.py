"""Reranking: a query and documents, judged as pairs by a cross-encoder, or embedded apart and compared.

The query is tokenised once a chunk. It is never cut: only documents are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shoal.adapters.base import Finished, Prepared, Scores
from shoal.adapters.embedding import OVERFLOW_OF, Embedding
from shoal.adapters.multivector import rows_by_text
from shoal.adapters.texts import Texts
from shoal.adapters.vectors import finish_vectors
from shoal.catalog.spec import Classifier, ModelSpec, MultiVector
from shoal.errors import InternalError
from shoal.runtimes.base import Arrays
from shoal.types import EmbedOptions, Output, RerankOptions

__all__ = ["BiEncoder", "CrossEncoder", "LateInteraction", "sound_scores"]


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

    _output: Output = "dense"

    def __init__(self, spec: ModelSpec, embedding: Embedding) -> None:
        self._spec = spec
        self._embedding = embedding

    def check(self, options: RerankOptions) -> None:
        """Any options will do: a cosine has no raw form, so `raw_scores` changes nothing."""

    def prepare(self, items: Sequence[str | list[int]], options: RerankOptions, first_item: int) -> list[Prepared]:
        as_document = EmbedOptions(
            input_type="document",
            overflow=OVERFLOW_OF[options.truncate],
            truncation_side=options.truncation_side,
            outputs=(self._output,),
        )
        as_query = EmbedOptions(input_type="query", overflow="error", outputs=(self._output,))
        query = self._embedding.prepare_shared(options.query, as_query, "query", "Change the query: it is never cut.")
        return [query, *self._embedding.prepare(items, as_document, first_item)]

    def finish(self, raw: Arrays, options: RerankOptions, runs: Sequence[Prepared]) -> tuple[Finished, ...]:
        unit = EmbedOptions(normalize=True)
        vectors = finish_vectors(raw["dense"], unit, is_normalized=self._spec.is_normalized).data
        return (sound_scores(vectors[1:] @ vectors[0]),)


class LateInteraction(BiEncoder):
    """Ranks by MaxSim: for each vector of the query, its largest product with one of the document's, added up."""

    _output: Output = "multivector"

    def __init__(self, spec: ModelSpec, embedding: Embedding, head: MultiVector) -> None:
        super().__init__(spec, embedding)
        self._head = head

    def finish(self, raw: Arrays, options: RerankOptions, runs: Sequence[Prepared]) -> tuple[Finished, ...]:
        query, *documents = rows_by_text(raw, self._head, None)
        scores = np.array([_max_sim(query, document) for document in documents], np.float32)
        return (sound_scores(scores / max(1, len(query)) if self._head.scoring == "mean" else scores),)


_NOTHING_TO_MATCH = np.float32(-1e9)
"""Score of a document without a vector: behind all others, as in sentence-transformers."""


def _max_sim(query: npt.NDArray[np.float32], document: npt.NDArray[np.float32]) -> np.float32:
    """Each with as many rows as it has vectors."""
    return np.float32((query @ document.T).max(axis=1).sum()) if len(document) else _NOTHING_TO_MATCH


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
