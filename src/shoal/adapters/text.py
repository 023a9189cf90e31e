"""The text adapter: one model, each of its operations by the kind of options. Knows no runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.adapters.base import Finished, Prepared
from shoal.adapters.classifying import Classifying
from shoal.adapters.embedding import Embedding
from shoal.adapters.reranking import BiEncoder, CrossEncoder
from shoal.adapters.texts import Texts
from shoal.adapters.tokenizing import Tokenizer
from shoal.catalog.spec import ModelSpec
from shoal.errors import UnsupportedOperation
from shoal.runtimes.base import Arrays, Features
from shoal.types import ClassifyOptions, EmbedOptions, Options, RerankOptions, operation_of

__all__ = ["TextAdapter"]


class TextAdapter:
    """See `adapters.base.Adapter`. `truncates` is what happens if a request does not say."""

    def __init__(self, spec: ModelSpec, tokenizer: Tokenizer, *, truncates: bool = True) -> None:
        self._spec = spec
        texts = Texts(spec, tokenizer, truncates=truncates)
        embedding = Embedding(texts)
        self._operations: dict[type[Options], Any] = {EmbedOptions: embedding}
        if spec.classifier is not None:
            self._operations[ClassifyOptions] = Classifying(texts, spec.classifier)
        if spec.rerank_method == "cosine":
            self._operations[RerankOptions] = BiEncoder(spec, embedding)
        elif spec.classifier is not None and spec.classifier.is_ranker:
            self._operations[RerankOptions] = CrossEncoder(texts, spec.classifier)

    def check(self, options: Options) -> None:
        operation = operation_of(options)
        if operation not in self._spec.operations:
            can = ", ".join(self._spec.operations)
            raise UnsupportedOperation(f"{self._spec.id} cannot {operation}; it can: {can}.", param="model")
        self._operations[type(options)].check(options)

    def prepare(self, items: Sequence[str | list[int]], options: Options, first_item: int = 0) -> list[Prepared]:
        prepared: list[Prepared] = self._operations[type(options)].prepare(items, options, first_item)
        return prepared

    def collate(self, items: Sequence[Prepared]) -> Features:
        types = None
        if any(item.token_type_ids is not None for item in items):
            given = [(item.token_ids, item.token_type_ids) for item in items]
            types = np.concatenate([np.zeros_like(ids) if own is None else own for ids, own in given])
        return Features(
            token_ids=np.concatenate([item.token_ids for item in items]),
            lengths=np.array([item.token_ids.shape[0] for item in items], np.int32),
            pool_from=np.array([item.pool_from for item in items], np.int32),
            token_type_ids=types,
        )

    def finish(self, raw: Arrays, options: Options, runs: Sequence[Prepared] = ()) -> tuple[Finished, ...]:
        finished: tuple[Finished, ...] = self._operations[type(options)].finish(raw, options, runs)
        return finished
