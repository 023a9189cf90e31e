"""Embedding: prompts in front of texts, and raw vectors to what the caller asked for. Knows no tokenizers library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import msgspec

from shoal.adapters.base import Finished, Prepared
from shoal.adapters.multivector import as_side, finish_multivector, side_of
from shoal.adapters.prompts import prompt_of
from shoal.adapters.sparse import finish_sparse
from shoal.adapters.texts import Texts
from shoal.adapters.vectors import Matrix, check_dimensions, finish_vectors, mean_of_windows
from shoal.catalog.spec import Pooling
from shoal.errors import InvalidRequest, UnsupportedOperation
from shoal.runtimes.base import Arrays
from shoal.types import EmbedOptions, Output, Overflow

__all__ = ["OVERFLOW_OF", "Embedding"]

OVERFLOW_OF: dict[bool | None, Overflow | None] = {True: "truncate", False: "error", None: None}
"""What `truncate` of other operations means."""

_TRUNCATES = {overflow: truncate for truncate, overflow in OVERFLOW_OF.items()}


class Embedding:
    """See `adapters.base.Adapter`."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._spec = texts.spec
        self._includes_prompt = all(not isinstance(m, Pooling) or m.include_prompt for m in self._spec.modules)
        self._prompt_length = lru_cache(256)(self._measure_prompt)
        self._finishers: dict[Output, Callable[[Arrays, EmbedOptions], Finished]] = {
            "dense": self._finish_dense,
            "sparse": finish_sparse,
        }
        if self._spec.multivector is not None:
            self._finishers["multivector"] = partial(finish_multivector, head=self._spec.multivector)

    def check(self, options: EmbedOptions) -> None:
        for output in options.outputs:
            if output not in self._spec.outputs:
                has = ", ".join(self._spec.outputs) or "none"
                raise UnsupportedOperation(f"{self._spec.id} has no output {output}; it has: {has}.", param="outputs")
        if options.overflow == "chunk" and options.outputs != ("dense",):
            raise UnsupportedOperation("overflow is chunk, which only dense vectors have a mean for.", param="overflow")
        if options.pool_factor is not None and "multivector" not in options.outputs:
            raise InvalidRequest("pool_factor merges vectors of the output multivector.", param="pool_factor")
        check_dimensions(self._spec, options.dimensions)
        self._prompt(options)

    def prepare(self, items: Sequence[str | list[int]], options: EmbedOptions, first_item: int) -> list[Prepared]:
        side, head = None, self._spec.multivector
        if head is not None and "multivector" in options.outputs:
            side = head.query if side_of(options) == "query" else head.document
        prompt = self._prompt(options)
        pool_from = self._prompt_length(prompt) if prompt and not self._includes_prompt else 0
        texts = enumerate(self._texts.encode(items, prompt, first_item), first_item)
        if options.overflow == "chunk":
            prompt_ids = self._texts.encode_field(prompt, "prompt") if prompt else []
            return [
                window
                for number, ids in texts
                for window in self._texts.windows(ids, prompt_ids, number, pool_from=pool_from)
            ]
        single = partial(
            self._texts.single,
            truncate=_TRUNCATES[options.overflow],
            side=options.truncation_side,
            pool_from=pool_from,
            max_length=0 if side is None else side.max_length,
        )
        runs = [single(ids, number) for number, ids in texts]
        return runs if side is None else [as_side(run, side) for run in runs]

    def prepare_shared(self, text: str, options: EmbedOptions, field: str, hint: str | None = None) -> Prepared:
        """A text that belongs to no item: it rides along, to be compared with them.

        Args:
            field, hint: what errors call it, and what they say to do.

        Raises:
            InvalidRequest: as in `prepare`.
        """
        try:
            (prepared,) = self.prepare([text], options, 0)
        except InvalidRequest as error:
            message = error.message.replace("input[0]", field)
            raise type(error)(message, param=field, hint=hint or error.hint) from error
        return msgspec.structs.replace(prepared, is_shared=True)

    def finish(self, raw: Arrays, options: EmbedOptions, runs: Sequence[Prepared]) -> tuple[Finished, ...]:
        if any(run.continues for run in runs):
            raw = {"dense": self._mean_of_windows(raw, options, runs)}
        others = [msgspec.structs.replace(options, dtype=dtype) for dtype in options.also_dtypes]
        return (
            *(self._finishers[output](raw, options) for output in options.outputs),
            *(self._finish_dense(raw, other) for other in others),
        )

    def _finish_dense(self, raw: Arrays, options: EmbedOptions) -> Finished:
        return finish_vectors(raw["dense"], options, is_normalized=self._spec.is_normalized)

    def _mean_of_windows(self, raw: Arrays, options: EmbedOptions, runs: Sequence[Prepared]) -> Matrix:
        """A window weighs what it has of the text's own tokens: neither special ones nor the prompt's."""
        num_others = self._texts.tokenizer.num_special
        if prompt := self._prompt(options):
            num_others += len(self._texts.encode_field(prompt, "prompt"))
        return mean_of_windows(
            raw["dense"],
            weights=[max(1, run.cost - num_others) for run in runs],
            starts=[place for place, run in enumerate(runs) if not run.continues],
            is_normalized=self._spec.is_normalized,
        )

    def _prompt(self, options: EmbedOptions) -> str:
        head = self._spec.multivector
        if head is not None and head.query != head.document and "multivector" in options.outputs:
            # What is not said to be a query is a document, and has a document's marker.
            options = msgspec.structs.replace(options, input_type=side_of(options))
        return prompt_of(self._spec, options, default_name=self._spec.default_prompt_name)

    def _measure_prompt(self, prompt: str) -> int:
        """Tokens that pooling leaves out: the prompt alone with its special tokens, but for the last one."""
        tokenizer = self._texts.tokenizer
        special = tokenizer.num_special
        num_ids = min(len(tokenizer.encode([prompt])[0]), self._spec.tokenization.max_length - special)
        return num_ids + special - (1 if tokenizer.suffix else 0)
