"""Reranking with a decoder that is asked: a frame around query and document, of which only the document is ever cut.

What stands in front of the document is tokenised once a chunk. A tokenizer may join its end with the document's first
word, so where the two part is found out when the model is opened, with texts of many kinds.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence

from shoal.adapters.base import Prepared
from shoal.adapters.reranking import CrossEncoder
from shoal.adapters.texts import Texts
from shoal.catalog.spec import Classifier, Frame
from shoal.errors import InvalidRequest, ModelRefused
from shoal.types import RerankOptions

__all__ = ["FramedRanker"]

_QUERIES = ("query", "what?", "x ", "line\n", "é東", "7", "")
_DOCUMENTS = (
    "word",
    " word",
    "\n\nword",
    "\tword",
    "7",
    "?!",
    "東京",
    "é",
    "\u0301x",
    "😀",
    "",
    "  ",
    "'s",
    "_a",
    "<b>",
)
"""What ends or begins with everything that tokenizers tell apart."""


class FramedRanker(CrossEncoder):
    """Ranks by the words that a decoder would say next. See `adapters.base.Adapter`."""

    def __init__(self, texts: Texts, classifier: Classifier, frame: Frame) -> None:
        super().__init__(texts, classifier)
        self._plain = _Opening(texts, frame.parts)
        self._instructed = _Opening(texts, frame.instructed) if frame.instructed else self._plain
        (self._closing,) = texts.tokenizer.encode([frame.parts[-1]])

    def check(self, options: RerankOptions) -> None:
        if options.truncation_side == "left":
            raise InvalidRequest(
                f"truncation_side is left; {self._texts.spec.id} is asked about a document from its beginning.",
                param="truncation_side",
            )

    def prepare(self, items: Sequence[str | list[int]], options: RerankOptions, first_item: int) -> list[Prepared]:
        texts, opening = self._texts, self._plain
        if options.instruction is not None:
            texts.encode_field(options.instruction, "instruction")
            opening = self._instructed
        shared_text, held_back = opening.parted(options.query, options.instruction or "")
        shared = texts.encode_field(shared_text, "query")
        (held_back_ids,) = texts.tokenizer.encode([held_back])
        texts.require_room(shared, "query", len(held_back_ids) + len(self._closing))
        return [
            texts.between(shared, ids, self._closing, number, truncate=options.truncate)
            for number, ids in enumerate(texts.encode(items, held_back, first_item), first_item)
        ]


class _Opening:
    """What stands in front of a document.

    Raises:
        ModelRefused: the tokenizer joins a document with what closes the frame.
    """

    def __init__(self, texts: Texts, parts: tuple[str, ...]) -> None:
        self._texts = texts
        self._parts = parts
        self._num_held_back = self._measure()

    def parted(self, query: str, instruction: str) -> tuple[str, str]:
        """What is tokenised once, and the end of it that is tokenised with each document."""
        whole = self._whole(query, instruction)
        end = max(0, len(whole) - self._num_held_back)
        return whole[:end], whole[end:]

    def _whole(self, query: str, instruction: str = "x") -> str:
        texts = {"{query}": query, "{instruction}": instruction}
        return "".join([texts.get(part, part) for part in self._parts[:-2]])

    def _measure(self) -> int:
        """Characters held back: as few as do, or all."""
        encode, closing = self._texts.tokenizer.encode, self._parts[-1]
        openings = [self._whole(query) for query in _QUERIES]
        whole = encode([opening + document for opening, document in itertools.product(openings, _DOCUMENTS)])
        closed = encode([opening + text + closing for opening, text in itertools.product(openings, _DOCUMENTS)])
        (closing_ids,) = encode([closing])
        if closed != [ids + closing_ids for ids in whole]:
            raise ModelRefused(
                f"{self._texts.spec.id}: its tokenizer joins a document with what closes the frame, so the document "
                "alone cannot be cut.",
                param="frame",
                hint="A special token behind the document would part them.",
            )
        link = "" if self._parts[-3].startswith("{") else self._parts[-3]
        for num_characters in range(len(link) + 1):
            lefts = encode([opening[: len(opening) - num_characters] for opening in openings])
            rights = encode([link[len(link) - num_characters :] + document for document in _DOCUMENTS])
            if whole == [left + right for left, right in itertools.product(lefts, rights)]:
                return num_characters
        return sys.maxsize
