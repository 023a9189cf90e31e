"""Extracting: texts, long ones in windows that overlap, to entities. A token is judged where most stands around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from shoal.adapters.base import Entities, Finished, Passage, Prepared, runs_by_item
from shoal.adapters.entities import find_entities
from shoal.adapters.texts import Texts
from shoal.adapters.tokenizing import Ids
from shoal.catalog.spec import Tagger
from shoal.errors import InternalError, InvalidRequest
from shoal.runtimes.base import Arrays
from shoal.types import Entity, ExtractOptions

__all__ = ["Extracting"]

Floats = npt.NDArray[np.float32]


class Extracting:
    """See `adapters.base.Adapter`."""

    def __init__(self, texts: Texts, tagger: Tagger) -> None:
        self._texts = texts
        self._tagger = tagger
        self._prefix_length = len(texts.tokenizer.prefix)
        self._window_tokens = texts.spec.tokenization.max_length - texts.tokenizer.num_special

    def check(self, options: ExtractOptions) -> None:
        known = self._tagger.entities
        for label in options.labels:
            if label not in known:
                raise InvalidRequest(
                    f"labels holds {label[:100]!r}; {self._texts.spec.id} finds: {', '.join(known)}.", param="labels"
                )
        overlap, limit = options.overlap_tokens, self._window_tokens - 1
        if overlap is not None and not 0 <= overlap <= limit:
            raise InvalidRequest(
                f"overlap_tokens is {overlap}; windows of {self._texts.spec.id} can share 0 to {limit}.",
                param="overlap_tokens",
            )

    def prepare(self, items: Sequence[str | list[int]], options: ExtractOptions, first_item: int) -> list[Prepared]:
        texts = self._texts.passages(items, first_item)
        return [
            run
            for number, (ids, passage) in enumerate(texts, first_item)
            for run in self._runs(ids, passage, number, options)
        ]

    def _runs(self, ids: Ids, passage: Passage, number: int, options: ExtractOptions) -> Iterator[Prepared]:
        is_read_whole = options.overflow in (None, "chunk")
        for first in self._window_starts(len(ids), options.overlap_tokens) if is_read_whole else [0]:
            window = ids[first : first + self._window_tokens] if is_read_whole else ids
            run = self._texts.single(window, number, truncate=options.overflow == "truncate", side="right")
            yield Prepared(run.token_ids, 0, run.was_truncated, continues=first > 0, passage=passage, first_token=first)

    def _window_starts(self, num_tokens: int, overlap_tokens: int | None) -> list[int]:
        """The last window ends with the text, so that it is as long as the others."""
        size = self._window_tokens
        if num_tokens <= size:
            return [0]
        step = size - (size // 4 if overlap_tokens is None else overlap_tokens)
        last = num_tokens - size
        return [*range(0, last, step), last]

    def finish(self, raw: Arrays, options: ExtractOptions, runs: Sequence[Prepared]) -> tuple[Finished, ...]:
        logits = np.asarray(raw["tags.logits"], np.float32)
        ends = np.cumsum(raw["tags.lengths"])
        if not np.isfinite(logits).all():
            row = int(np.searchsorted(ends, np.flatnonzero(~np.isfinite(logits).all(axis=1))[0], "right"))
            raise InternalError(f"The model's logits for row {row} are not finite.", param=f"row {row}")
        rows = iter(np.split(logits, ends[:-1]))
        return (
            Entities([self._found([(run, next(rows)) for run in windows], options) for windows in runs_by_item(runs)]),
        )

    def _found(self, windows: list[tuple[Prepared, Floats]], options: ExtractOptions) -> list[Entity]:
        passage = windows[0][0].passage
        if passage is None:
            raise InternalError("a run that was prepared to extract from knows no text")
        probabilities = _softmax(self._judged(windows))
        passage = passage.cut(len(probabilities))
        entities = find_entities(passage, probabilities, self._tagger.labels, options.aggregation)
        return [
            entity
            for entity in entities
            if entity.score > options.threshold
            and (not options.labels or entity.label.split("-", 1)[-1] in options.labels)
        ]

    def _judged(self, windows: list[tuple[Prepared, Floats]]) -> Floats:
        """Logits of a text's tokens [num_tokens, num_labels]: of each those from the window with most around it."""
        own = [
            (run.first_token, rows[self._prefix_length : len(rows) - len(self._texts.tokenizer.suffix)])
            for run, rows in windows
        ]
        if len(own) == 1:
            return own[0][1]
        num_tokens = own[-1][0] + len(own[-1][1])
        logits = np.empty((num_tokens, own[0][1].shape[1]), np.float32)
        most = np.full(num_tokens, -1)
        for first, rows in own:
            last = first + len(rows)
            places = np.arange(first, last)
            before = places - first if first else np.full(len(rows), num_tokens)
            behind = last - 1 - places if last < num_tokens else np.full(len(rows), num_tokens)
            around = np.minimum(before, behind)
            is_better = around > most[first:last]
            logits[first:last][is_better] = rows[is_better]
            most[first:last] = np.maximum(most[first:last], around)
        return logits


def _softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float32)
