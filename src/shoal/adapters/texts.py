"""Items to token ids within the model's length: what all operations share. Knows no output and no runtime.

What a text means is exactly what the model's own tokenizer makes of it: nothing is stripped or replaced, and a special
token written out in a text (`[SEP]`, `</s>`) is that special token, as in sentence-transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.adapters.base import Passage, Prepared
from shoal.adapters.tokenizing import Ids, Spans, Tokenizer
from shoal.catalog.spec import ModelSpec
from shoal.errors import ContextLengthExceeded, InvalidRequest

__all__ = ["Texts"]


class Texts:
    """A model's tokenizer and its limits. `truncates` is what happens if a request does not say."""

    def __init__(self, spec: ModelSpec, tokenizer: Tokenizer, *, truncates: bool = True) -> None:
        self.spec = spec
        self.tokenizer = tokenizer
        self._truncates = truncates

    def single(
        self,
        ids: Ids,
        number: int,
        *,
        truncate: bool | None,
        side: str | None = None,
        pool_from: int = 0,
        max_length: int = 0,
    ) -> Prepared:
        """A text alone, cut from the end that `side` names, None = the tokenizer's own; to `max_length`, 0 = usual.

        Raises:
            ContextLengthExceeded: it is too long and not to be cut.
            InvalidRequest: it has no token, and the model adds none.
        """
        kept = self._fit(ids, self.tokenizer.num_special, number, truncate, side, max_length)
        token_ids = self.tokenizer.with_special(kept)
        if not token_ids.shape[0]:
            raise _nothing_left(self.spec.id, number)
        # The prompt may have swallowed the text's first token; something must be left to pool.
        start = min(pool_from, token_ids.shape[0] - 1) if pool_from else 0
        return Prepared(token_ids, start, len(kept) < len(ids))

    def windows(self, ids: Ids, prompt: Ids, number: int, *, pool_from: int = 0) -> list[Prepared]:
        """A text in as few runs as it fits into, each full but the last; the prompt stands in front of each.

        Args:
            ids: of prompt and text together.
            prompt: of the prompt alone.

        Raises:
            InvalidRequest: the prompt leaves no room, or there is no token at all.
        """
        room = self.spec.tokenization.max_length - self.tokenizer.num_special
        if len(ids) <= room:
            return [self.single(ids, number, truncate=False, pool_from=pool_from)]
        stride = room - len(prompt)
        if stride < 1:
            raise InvalidRequest(
                f"The prompt has {len(prompt)} tokens and leaves no room for text: {self.spec.id} takes {room}.",
                param="overflow",
                hint="Take a shorter prompt, or overflow: truncate.",
            )
        pieces = [ids[:room], *([*prompt, *ids[start : start + stride]] for start in range(room, len(ids), stride))]
        return [
            Prepared(self.tokenizer.with_special(piece), pool_from, continues=place > 0)
            for place, piece in enumerate(pieces)
        ]

    def pair(
        self,
        first: Ids,
        second: Ids,
        number: int,
        *,
        truncate: bool | None,
        side: str | None = None,
        cuts_second: bool = True,
    ) -> Prepared:
        """Two texts with the model's special tokens for a pair; only one of them is ever cut, from the end `side`.

        Raises:
            ContextLengthExceeded: they are too long together and it is not to be cut.
        """
        layout = self.tokenizer.pair
        cut, other = (second, first) if cuts_second else (first, second)
        kept = self._fit(cut, layout.num_special + len(other), number, truncate, side)
        token_ids, types = layout.join(*((first, kept) if cuts_second else (kept, second)))
        return Prepared(token_ids, 0, len(kept) < len(cut), types if self.spec.tokenization.has_types else None)

    def between(self, opening: Ids, ids: Ids, closing: Ids, number: int, *, truncate: bool | None) -> Prepared:
        """A text between ids that are never cut; its end is.

        Raises:
            ContextLengthExceeded: they are too long together and it is not to be cut.
        """
        kept = self._fit(ids, len(opening) + len(closing), number, truncate, "right")
        return Prepared(np.array([*opening, *kept, *closing], np.int32), 0, len(kept) < len(ids))

    def require_room(self, ids: Ids, field: str, num_others: int | None = None) -> None:
        """Refuse the fixed text of a pair if it leaves no room for a token of the other one.

        Args:
            num_others: tokens besides those of the two texts; None = the special ones of a pair.

        Raises:
            ContextLengthExceeded: names the field.
        """
        if num_others is None:
            num_others = self.tokenizer.pair.num_special
        limit = self.spec.tokenization.max_length - num_others - 1
        if len(ids) > limit:
            raise ContextLengthExceeded(
                f"{field} has {len(ids)} tokens; {self.spec.id} takes at most {limit} here, and never cuts it.",
                param=field,
                hint="Shorten it.",
            )

    def encode(self, items: Sequence[Any], prompt: str = "", first_item: int = 0) -> list[Ids]:
        """Ids of each item without special tokens.

        Raises:
            InvalidRequest: an item is unusable; `param` is `input[first_item + i]`.
        """
        places = [place for place, item in enumerate(items) if type(item) is str]
        texts = [prompt + items[place] for place in places] if prompt else [items[place] for place in places]
        try:
            encoded = self.tokenizer.encode(texts)
        except (TypeError, UnicodeError) as error:
            raise _not_unicode(items, prompt, first_item) from error
        if len(places) == len(items):
            return encoded
        by_place = dict(zip(places, encoded, strict=True))
        return [
            by_place[place] if place in by_place else self._own_ids(item, prompt, first_item + place)
            for place, item in enumerate(items)
        ]

    def encode_spans(self, items: Sequence[Any], prompt: str, first_item: int) -> list[tuple[str, Spans]]:
        """Each text, the prompt in front, its ids without special tokens and where they stand in it.

        Raises:
            InvalidRequest: an item is no text; `param` is `input[first_item + i]`.
        """
        for number, item in enumerate(items, first_item):
            if type(item) is not str:
                raise InvalidRequest(f"input[{number}] must be a text.", param=f"input[{number}]")
        texts = [prompt + item for item in items]
        try:
            return list(zip(texts, self.tokenizer.encode_spans(texts), strict=True))
        except (TypeError, UnicodeError) as error:
            raise _not_unicode(items, prompt, first_item) from error

    def passages(self, items: Sequence[Any], first_item: int) -> list[tuple[Ids, Passage]]:
        """Ids of each text without special tokens, and where they stand in it; raises as `encode_spans` does."""
        return [
            (spans.ids, _passage(text, spans, self.tokenizer.continues_word(text, spans)))
            for text, spans in self.encode_spans(items, "", first_item)
        ]

    def encode_field(self, text: str, field: str) -> Ids:
        """Ids of a text that is no item, without special tokens.

        Raises:
            InvalidRequest: it is not valid Unicode; `param` is `field`.
        """
        try:
            return self.tokenizer.encode([text])[0]
        except (TypeError, UnicodeError) as error:
            raise InvalidRequest(f"{field} is not valid Unicode: {error}", param=field) from error

    def _fit(
        self, ids: Ids, num_others: int, number: int, truncate: bool | None, side: str | None, max_length: int = 0
    ) -> Ids:
        """The ids, cut so that they fit beside `num_others`."""
        limit = max_length or self.spec.tokenization.max_length
        budget = limit - num_others
        if len(ids) <= budget:
            return ids
        if not (self._truncates if truncate is None else truncate):
            name = f"input[{number}]"
            raise ContextLengthExceeded(
                f"{name} has {len(ids) + num_others} tokens, special tokens included; {self.spec.id} takes {limit}.",
                param=name,
                hint="Shorten it, or send truncate: true to have it cut.",
            )
        keeps_end = (side or self.spec.tokenization.truncation_side) == "left"
        return ids[len(ids) - budget :] if keeps_end else ids[:budget]

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
        limit = self.spec.vocabulary_size
        worst = max(item) if max(item) >= limit else min(item)
        if not 0 <= worst < limit:
            raise InvalidRequest(
                f"{name} holds the token id {worst}; ids of {self.spec.id} are 0 to {limit - 1}.",
                param=name,
                hint="Ids of another tokenizer mean other words here: send the text itself.",
            )
        return item


def _passage(text: str, spans: Spans, continues_word: list[bool]) -> Passage:
    places = np.array(spans.places, np.int32).reshape(-1, 2)
    return Passage(text, places[:, 0], places[:, 1], np.array(continues_word, np.bool_))


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
