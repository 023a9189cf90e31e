"""Tokenising for its own sake: the tokens of a text, or the text that tokens stand for. Nothing runs on the device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.adapters.base import Finished, Prepared, TokenLists, Tokens, WrittenTexts
from shoal.adapters.prompts import prompt_of
from shoal.adapters.texts import Texts
from shoal.adapters.tokenizing import Ids, Spans
from shoal.errors import InvalidRequest
from shoal.runtimes.base import Arrays
from shoal.types import TokenizeOptions

__all__ = ["Tokenizing"]


class Tokenizing:
    """See `adapters.base.Adapter`."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    def check(self, options: TokenizeOptions) -> None:
        prompt_of(self._texts.spec, options)

    def prepare(self, items: Sequence[str | list[int]], options: TokenizeOptions, first_item: int) -> list[Prepared]:
        if options.decodes:
            return [self._decode(item, number, options) for number, item in enumerate(items, first_item)]
        prompt = prompt_of(self._texts.spec, options)
        texts = self._texts.encode_spans(items, prompt, first_item)
        return [self._tokens(text, spans, len(prompt), options) for text, spans in texts]

    def finish(self, raw: Arrays, options: TokenizeOptions, runs: Sequence[Prepared]) -> tuple[Finished, ...]:
        if options.decodes:
            return (WrittenTexts([run.result for run in runs if isinstance(run.result, str)]),)
        return (TokenLists([run.result for run in runs if isinstance(run.result, Tokens)]),)

    def _tokens(self, text: str, spans: Spans, num_prompt: int, options: TokenizeOptions) -> Prepared:
        tokenizer = self._texts.tokenizer
        has_special = options.has_special_tokens
        prefix: Ids = tokenizer.prefix if has_special else []
        suffix: Ids = tokenizer.suffix if has_special else []
        ids = [*prefix, *spans.ids, *suffix]
        pieces = [text[start:end] for start, end in spans.places]
        places = [(max(0, start - num_prompt), max(0, end - num_prompt)) for start, end in spans.places]
        nowhere = (0, 0)
        tokens = Tokens(
            ids=ids,
            tokens=tokenizer.names(ids),
            texts=[*tokenizer.names(prefix), *pieces, *tokenizer.names(suffix)],
            offsets=[*[nowhere] * len(prefix), *places, *[nowhere] * len(suffix)],
            special=[*[True] * len(prefix), *[False] * len(pieces), *[True] * len(suffix)],
        )
        return Prepared(np.array(ids, np.int32), result=tokens)

    def _decode(self, item: str | list[int], number: int, options: TokenizeOptions) -> Prepared:
        if isinstance(item, str):
            raise InvalidRequest(f"input[{number}] is a text; it must be a list of ids.", param=f"input[{number}]")
        (ids,) = self._texts.encode([item], first_item=number)
        text = self._texts.tokenizer.decode(ids, skips_special=not options.has_special_tokens)
        return Prepared(np.array(ids, np.int32), result=text)
