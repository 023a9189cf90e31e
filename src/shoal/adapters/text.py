"""The text adapter: one model, each of its operations by the kind of options. Knows no runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.adapters.base import Finished, Prepared
from shoal.adapters.classifying import Classifying
from shoal.adapters.embedding import Embedding
from shoal.adapters.extracting import Extracting
from shoal.adapters.framing import FramedRanker
from shoal.adapters.reranking import BiEncoder, CrossEncoder, LateInteraction
from shoal.adapters.similarity import Similarity
from shoal.adapters.texts import Texts
from shoal.adapters.tokenizing import Tokenizer
from shoal.adapters.tokens import Tokenizing
from shoal.catalog.spec import ModelSpec
from shoal.errors import UnsupportedOperation
from shoal.runtimes.base import Arrays, Features
from shoal.types import (
    ClassifyOptions,
    EmbedOptions,
    ExtractOptions,
    Options,
    RerankOptions,
    SimilarityOptions,
    TokenizeOptions,
    operation_of,
)

__all__ = ["TextAdapter"]


class TextAdapter:
    """See `adapters.base.Adapter`. `truncates` is what happens if a request does not say."""

    def __init__(self, spec: ModelSpec, tokenizer: Tokenizer, *, truncates: bool = True) -> None:
        self._spec = spec
        texts = Texts(spec, tokenizer, truncates=truncates)
        embedding = Embedding(texts)
        self._operations: dict[type[Options], Any] = {EmbedOptions: embedding, TokenizeOptions: Tokenizing(texts)}
        if spec.similarity:
            self._operations[SimilarityOptions] = Similarity(spec, embedding)
        if spec.tagger is not None:
            self._operations[ExtractOptions] = Extracting(texts, spec.tagger)
        if spec.classifier is not None and spec.frame is None:
            self._operations[ClassifyOptions] = Classifying(texts, spec.classifier)
        if spec.rerank_method == "cosine":
            self._operations[RerankOptions] = BiEncoder(spec, embedding)
        elif spec.classifier is not None and spec.frame is not None:
            self._operations[RerankOptions] = FramedRanker(texts, spec.classifier, spec.frame)
        elif spec.multivector is not None and spec.rerank_method == "maxsim":
            self._operations[RerankOptions] = LateInteraction(spec, embedding, spec.multivector)
        elif spec.classifier is not None and spec.classifier.is_ranker:
            self._operations[RerankOptions] = CrossEncoder(texts, spec.classifier)

    def check(self, options: Options) -> None:
        operation = operation_of(options)
        if operation not in self._spec.operations:
            can = ", ".join(self._spec.operations)
            raise UnsupportedOperation(f"{self._spec.id} cannot {operation}; it can: {can}.", param="model")
        is_instructed = isinstance(options, RerankOptions) and options.instruction is not None
        if is_instructed and not self._spec.card.takes_instruction:
            raise UnsupportedOperation(f"{self._spec.id} takes no instruction.", param="instruction")
        self._operations[type(options)].check(options)

    def prepare(self, items: Sequence[str | list[int]], options: Options, first_item: int = 0) -> list[Prepared]:
        prepared: list[Prepared] = self._operations[type(options)].prepare(items, options, first_item)
        return prepared

    def collate(self, items: Sequence[Prepared]) -> Features:
        return Features(
            token_ids=np.concatenate([item.token_ids for item in items]),
            lengths=np.array([item.cost for item in items], np.int32),
            pool_from=np.array([item.pool_from for item in items], np.int32),
            token_type_ids=_joined(items, [item.token_type_ids for item in items], np.int32),
            kept=_joined(items, [item.kept for item in items], np.bool_),
            num_keys=_num_keys(items),
        )

    def finish(self, raw: Arrays, options: Options, runs: Sequence[Prepared] = ()) -> tuple[Finished, ...]:
        finished: tuple[Finished, ...] = self._operations[type(options)].finish(raw, options, runs)
        return finished

    def takes_long(self, options: Options) -> bool:
        head = self._spec.multivector
        if head is None or not isinstance(options, EmbedOptions | RerankOptions):
            return False
        is_asked = isinstance(options, RerankOptions) or "multivector" in options.outputs
        merges = head.merging is not None or (isinstance(options, EmbedOptions) and options.pool_factor is not None)
        return is_asked and merges


def _joined(items: Sequence[Prepared], parts: Sequence[npt.NDArray[Any] | None], dtype: Any) -> Any:
    """What the items have for their tokens, zeros where one has nothing; None if none has."""
    if all(part is None for part in parts):
        return None
    pairs = zip(items, parts, strict=True)
    return np.concatenate([np.zeros(item.cost, dtype) if part is None else part for item, part in pairs])


def _num_keys(items: Sequence[Prepared]) -> npt.NDArray[np.int32] | None:
    if not any(item.num_keys for item in items):
        return None
    return np.array([item.num_keys or item.cost for item in items], np.int32)
