"""The text adapter: tokenise, cut, add prompts; and turn raw vectors into what the caller asked for.

Serves every text encoder that the catalog recognises. What a text means is exactly what the model's own tokenizer makes
of it: nothing is stripped or replaced, and a special token written out in a text (`[SEP]`, `</s>`) is that special
token, as in sentence-transformers. Knows no runtime and no tokenizers library.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from shoal.adapters.base import Prepared, Vectors
from shoal.adapters.tokenizing import Ids, Tokenizer
from shoal.adapters.vectors import check_dimensions, finish_vectors
from shoal.catalog.spec import ModelSpec, Pooling
from shoal.errors import ContextLengthExceeded, InvalidRequest
from shoal.runtimes.base import Arrays, Features
from shoal.types import EmbedOptions

__all__ = ["TextAdapter"]


class TextAdapter:
    """See `adapters.base.Adapter`. `truncates` is what happens if a request does not say."""

    def __init__(self, spec: ModelSpec, tokenizer: Tokenizer, *, truncates: bool = True) -> None:
        self._spec = spec
        self._truncates = truncates
        self._tokenizer = tokenizer
        self._max_length = spec.tokenization.max_length
        self._includes_prompt = all(not isinstance(m, Pooling) or m.include_prompt for m in spec.modules)
        self._prompt_length = lru_cache(256)(self._measure_prompt)

    def check(self, options: EmbedOptions) -> None:
        check_dimensions(self._spec, options.dimensions)
        self._prompt(options)

    def prepare(self, items: Sequence[str | list[int]], options: EmbedOptions, first_item: int = 0) -> list[Prepared]:
        prompt = self._prompt(options)
        pool_from = self._prompt_length(prompt) if prompt and not self._includes_prompt else 0
        keeps_end = (options.truncation_side or self._spec.tokenization.truncation_side) == "left"
        budget = self._max_length - self._tokenizer.num_special
        prepared = []
        for position, ids in enumerate(self._encode(items, prompt, first_item)):
            num_ids = len(ids)
            if num_ids > budget:
                self._refuse_long(num_ids, options, first_item + position)
                ids = ids[num_ids - budget :] if keeps_end else ids[:budget]
            token_ids = self._tokenizer.with_special(ids)
            if not token_ids.shape[0]:
                raise _nothing_left(self._spec.id, first_item + position)
            # The prompt may have swallowed the text's first token; something must be left to pool.
            start = min(pool_from, token_ids.shape[0] - 1) if pool_from else 0
            prepared.append(Prepared(token_ids, start, num_ids > budget))
        return prepared

    def collate(self, items: Sequence[Prepared]) -> Features:
        return Features(
            token_ids=np.concatenate([item.token_ids for item in items]),
            lengths=np.array([item.token_ids.shape[0] for item in items], np.int32),
            pool_from=np.array([item.pool_from for item in items], np.int32),
        )

    def finish(self, raw: Arrays, options: EmbedOptions) -> Vectors:
        return finish_vectors(raw["dense"], options, is_normalized=self._spec.is_normalized)

    def _prompt(self, options: EmbedOptions) -> str:
        """The text to put in front, "" for none."""
        if options.prompt is not None:
            if options.prompt_name is not None:
                raise InvalidRequest("prompt and prompt_name exclude each other.", param="prompt")
            return options.prompt
        name = options.prompt_name if options.prompt_name is not None else self._spec.default_prompt_name
        if name is None:
            return ""
        if name not in self._spec.prompts:
            known = ", ".join(sorted(self._spec.prompts)) or "none"
            raise InvalidRequest(
                f"prompt_name is {name!r}; the prompts of {self._spec.id} are: {known}.", param="prompt_name"
            )
        return self._spec.prompts[name]

    def _measure_prompt(self, prompt: str) -> int:
        """Tokens that pooling leaves out: the prompt alone with its special tokens, but for the last one."""
        special = self._tokenizer.num_special
        num_ids = min(len(self._tokenizer.encode([prompt])[0]), self._max_length - special)
        return num_ids + special - (1 if self._tokenizer.suffix else 0)

    def _encode(self, items: Sequence[Any], prompt: str, first_item: int) -> list[Ids]:
        """Ids of each item without special tokens."""
        places = [place for place, item in enumerate(items) if type(item) is str]
        texts = [prompt + items[place] for place in places] if prompt else [items[place] for place in places]
        try:
            encoded = self._tokenizer.encode(texts)
        except (TypeError, UnicodeError) as error:
            raise _not_unicode(items, prompt, first_item) from error
        if len(places) == len(items):
            return encoded
        by_place = dict(zip(places, encoded, strict=True))
        return [
            by_place[place] if place in by_place else self._own_ids(item, prompt, first_item + place)
            for place, item in enumerate(items)
        ]

    def _own_ids(self, item: Any, prompt: str, number: int) -> Ids:
        """Token ids that the caller brought along, checked."""
        name = f"input[{number}]"
        if type(item) is not list or not all(type(token) is int for token in item):
            raise InvalidRequest(f"{name} must be a string or a list of token ids.", param=name)
        if not item:
            raise InvalidRequest(f"{name} is an empty list of token ids.", param=name)
        if prompt:
            raise InvalidRequest(
                f"{name} is a list of token ids, which a prompt cannot be put in front of.",
                param=name,
                hint='Send the text itself, or "prompt": "".',
            )
        limit = self._spec.vocabulary_size
        worst = max(item) if max(item) >= limit else min(item)
        if not 0 <= worst < limit:
            raise InvalidRequest(
                f"{name} holds the token id {worst}; ids of {self._spec.id} are 0 to {limit - 1}.",
                param=name,
                hint="Ids of another tokenizer mean other words here: send the text itself.",
            )
        return item

    def _refuse_long(self, num_ids: int, options: EmbedOptions, number: int) -> None:
        """Raises if this request does not want its texts cut."""
        truncates = self._truncates if options.truncate is None else options.truncate
        if not truncates:
            given = num_ids + self._tokenizer.num_special
            name = f"input[{number}]"
            raise ContextLengthExceeded(
                f"{name} has {given} tokens, special tokens included; {self._spec.id} takes {self._max_length}.",
                param=name,
                hint="Shorten it, or send truncate: true to have it cut.",
            )


def _nothing_left(model: str, number: int) -> InvalidRequest:
    """The error for an empty text where no special tokens are added: there is nothing that could be a vector."""
    name = f"input[{number}]"
    return InvalidRequest(f"{name} has no tokens, and {model} adds none of its own.", param=name, hint="Leave it out.")


def _not_unicode(items: Sequence[Any], prompt: str, first_item: int) -> InvalidRequest:
    """The error for a text that has no UTF-8 form: a lone surrogate, which JSON can spell."""
    for place, item in enumerate(items):
        if type(item) is str:
            try:
                item.encode()
            except UnicodeEncodeError as error:
                name = f"input[{first_item + place}]"
                character = f"U+{ord(item[error.start]):04X}"
                return InvalidRequest(
                    f"{name} is not valid Unicode: half a surrogate pair, {character}, at character {error.start}.",
                    param=name,
                )
    return InvalidRequest(f"prompt {prompt!r} is not valid Unicode.", param="prompt")
