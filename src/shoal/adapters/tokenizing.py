"""Texts to token ids with a model's own tokenizer. The only file that imports the tokenizers library.

Special tokens and truncation are done by the caller: the tokenizer object is never changed after it is built, so any
number of threads may use it at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol, cast

import msgspec
import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import normalizers

from shoal.catalog.spec import Tokenization
from shoal.errors import ModelRefused, UnsupportedOperation

__all__ = ["Ids", "PairLayout", "Spans", "TextTokenizer", "Tokenizer"]

Ids = list[int]


class PairLayout(msgspec.Struct, frozen=True):
    """The special tokens around and between two texts.

    Attributes:
        prefix, middle, suffix: ids in front of, between and behind them.
        middle_types, suffix_type, second_type: token types of all that is not type 0; those of `middle` one by one.
    """

    prefix: Ids = []
    middle: Ids = []
    suffix: Ids = []
    middle_types: Ids = []
    second_type: int = 0
    suffix_type: int = 0

    @property
    def num_special(self) -> int:
        return len(self.prefix) + len(self.middle) + len(self.suffix)

    def join(self, first: Ids, second: Ids) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Token ids and token types of a pair: int32 [num_tokens] each."""
        ids = np.array([*self.prefix, *first, *self.middle, *second, *self.suffix], np.int32)
        types = np.zeros_like(ids)
        start = len(self.prefix) + len(first) + len(self.middle)
        types[start - len(self.middle) : start] = self.middle_types
        types[start : start + len(second)] = self.second_type
        types[start + len(second) :] = self.suffix_type
        return ids, types


class Spans(msgspec.Struct, frozen=True):
    """Tokens of a text and their places in it, in code points.

    Attributes:
        places: (start, end) of each.
    """

    ids: Ids
    places: list[tuple[int, int]]


class Tokenizer(Protocol):
    """A tokenizer, and the special tokens that it puts around a text.

    Attributes:
        prefix, suffix: ids in front of and behind a text.
        num_special: how many they are together.
        pair: the same for two texts.
    """

    prefix: Ids
    suffix: Ids
    num_special: int

    @property
    def pair(self) -> PairLayout:
        """Raises:
        UnsupportedOperation: the tokenizer does not say how two texts are put together.
        """
        ...

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text, without special tokens and however long. Lets other threads run meanwhile.

        Raises:
            TypeError, UnicodeError: a text has no UTF-8 form.
        """
        ...

    def encode_spans(self, texts: Sequence[str]) -> list[Spans]:
        """As `encode`, with places."""
        ...

    def continues_word(self, text: str, spans: Spans) -> list[bool]:
        """Whether each token belongs to the same word as the one before it."""
        ...

    def names(self, ids: Ids) -> list[str]:
        """What the vocabulary calls each, "" where it has no such id."""
        ...

    def decode(self, ids: Ids, *, skips_special: bool) -> str:
        """The text that ids stand for, with or without special tokens."""
        ...

    def with_special(self, ids: Ids) -> npt.NDArray[np.int32]:
        """int32 [num_tokens]: the ids between prefix and suffix."""
        ...


class TextTokenizer:
    """The tokenizer of a tokenizer.json. See `Tokenizer`."""

    def __init__(self, tokenization: Tokenization) -> None:
        self._tokenizer = _load(tokenization)
        self._unknown_id = self._tokenizer.token_to_id(tokenization.unknown) if tokenization.unknown else None
        self._marks_pieces = bool(getattr(self._tokenizer.model, "continuing_subword_prefix", None))
        self.prefix, self.suffix = _special_ids(self._tokenizer, tokenization.file)
        self.num_special = len(self.prefix) + len(self.suffix)

    @cached_property
    def pair(self) -> PairLayout:
        """Found out with two texts."""
        return _pair_layout(self._tokenizer)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_spans(self, texts: Sequence[str]) -> list[Spans]:
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [Spans(encoding.ids, encoding.offsets) for encoding in encodings]

    def continues_word(self, text: str, spans: Spans) -> list[bool]:
        """As transformers tells it: a mark (`##ing`) makes a token longer than what it stands for.

        Where nothing is marked it guesses: a word goes on if no blank stands before the token, or begins it.
        """
        if self._marks_pieces:
            lengths = zip(self.names(spans.ids), spans.places, strict=True)
            continues = [len(name) != end - start for name, (start, end) in lengths]
        else:
            continues = [start > 0 and " " not in text[start - 1 : start + 1] for start, _ in spans.places]
        return [goes_on and token != self._unknown_id for goes_on, token in zip(continues, spans.ids, strict=True)]

    def names(self, ids: Ids) -> list[str]:
        return [self._tokenizer.id_to_token(token) or "" for token in ids]

    def decode(self, ids: Ids, *, skips_special: bool) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=skips_special))

    def with_special(self, ids: Ids) -> npt.NDArray[np.int32]:
        return np.array([*self.prefix, *ids, *self.suffix], np.int32)


def _load(tokenization: Tokenization) -> tokenizers.Tokenizer:
    document = msgspec.json.decode(Path(tokenization.file).read_bytes())
    document.update(tokenization.parts)
    try:
        tokenizer = tokenizers.Tokenizer.from_str(msgspec.json.encode(document).decode())
    # The library raises bare Exception for whatever its parser does not like.
    except Exception as error:
        raise ModelRefused(f"tokenizer.json: not understood: {error}", param=tokenization.file) from error
    if tokenization.lower and not _has_lowercase(tokenizer.normalizer):
        steps = [normalizers.Lowercase()] + ([tokenizer.normalizer] if tokenizer.normalizer is not None else [])
        tokenizer.normalizer = normalizers.Sequence(steps)
    split = [text for text in tokenization.markers if _pieces(tokenizer, text) != [text]]
    tokenizer.add_special_tokens([tokenizers.AddedToken(text, normalized=False, special=True) for text in split])
    return tokenizer


def _pieces(tokenizer: tokenizers.Tokenizer, text: str) -> list[str]:
    return tokenizer.encode(text, add_special_tokens=False).tokens


def _has_lowercase(normalizer: normalizers.Normalizer | None) -> bool:
    if isinstance(normalizer, normalizers.Sequence):
        steps = cast("Iterable[normalizers.Normalizer]", normalizer)
        return any(isinstance(step, normalizers.Lowercase) for step in steps)
    return isinstance(normalizer, normalizers.Lowercase)


def _special_ids(tokenizer: tokenizers.Tokenizer, file: str) -> tuple[Ids, Ids]:
    """What the post-processor puts around a text, found out with a text."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    full = tokenizer.encode("a")
    mask = full.special_tokens_mask
    inside = [place for place, is_special in enumerate(mask) if not is_special]
    start = inside[0] if inside else 0
    if not bare or full.ids[start : start + len(bare)] != bare or any(full.type_ids):
        raise ModelRefused("tokenizer.json: post_processor does more than put tokens around a text.", param=file)
    return full.ids[:start], full.ids[start + len(bare) :]


def _pair_layout(tokenizer: tokenizers.Tokenizer) -> PairLayout:
    first, second = (tokenizer.encode(text, add_special_tokens=False).ids for text in _PAIR)
    full = tokenizer.encode(*_PAIR)
    ids, types = full.ids, full.type_ids
    places = [place for place, is_special in enumerate(full.special_tokens_mask) if not is_special]
    start = places[0] if places else 0
    end = places[-1] + 1 if places else 0
    middle = start + len(first), end - len(second)
    text_types = {*types[: middle[0]]}, {*types[middle[1] : end]}, {*types[end:]} or {0}
    is_plain = text_types[0] == {0} and len(text_types[1]) == len(text_types[2]) == 1
    if ids[start : middle[0]] != first or ids[middle[1] : end] != second or middle[0] > middle[1] or not is_plain:
        raise UnsupportedOperation("The model's tokenizer.json does not say how two texts are put together.")
    return PairLayout(
        prefix=ids[:start],
        middle=ids[middle[0] : middle[1]],
        suffix=ids[end:],
        middle_types=types[middle[0] : middle[1]],
        second_type=text_types[1].pop(),
        suffix_type=text_types[2].pop(),
    )


_PAIR = ("a", "b")
