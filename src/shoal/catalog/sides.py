"""How a multivector model's queries and documents become tokens: lengths, expansion, tokens without a vector."""

from __future__ import annotations

from typing import Any

from shoal.catalog.encoders import Encoder
from shoal.catalog.files import ModelFiles, refusal
from shoal.catalog.spec import Expansion, Side
from shoal.catalog.tokenization import MIN_LENGTH, reference_settings

__all__ = ["SideReader"]

Json = dict[str, Any]

_SIDES = ("query", "document")
_EXPANSION_KEYS = frozenset(("strategy", "attend", "token", "length"))


class SideReader:
    """Reads sentence_bert_config.json as sentence-transformers' Transformer does.

    Args:
        older: what other files say in its words; its own word goes first.
    """

    def __init__(self, files: ModelFiles, folder: str, encoder: Encoder, older: Json) -> None:
        self._file = folder + "sentence_bert_config.json"
        self._files = files
        self._encoder = encoder
        self._settings = {**older, **reference_settings(files, folder, "multi-vector")}

    def read(self, mask: Json) -> tuple[Side, Side]:
        """Query and document.

        Args:
            mask: config of the model's MultiVectorMask.

        Raises:
            ModelRefused: a length or the expansion is not understood; names the key.
        """
        usual, longest = self._encoder.tokenization.max_length, self._encoder.words.longest
        lengths = {side: min(self._length(side) or usual, longest) for side in _SIDES}
        expansion = self._expansion()
        if expansion is not None:
            stated, length = self._length("query"), expansion.length
            if stated and stated < length:
                raise refusal(self._file, "query_length", f"is {stated}, but queries are expanded to {length}.")
            is_fixed = self._settings["query_expansion"]["strategy"] == "fixed"
            lengths["query"] = length if is_fixed else lengths["query"]
        skipped = self._skipped_ids(mask)
        tasks = mask.get("skiplist_tasks", ["document"])
        query, document = (
            Side(lengths[side], expansion if side == "query" else None, skipped if side in tasks else ())
            for side in _SIDES
        )
        return query, document

    def _length(self, side: str) -> int:
        """Tokens that the files allow a side; 0 = they do not say."""
        length = self._settings.get(f"{side}_length")
        if length is None:
            return 0
        if type(length) is not int or length < MIN_LENGTH:
            raise refusal(self._file, f"{side}_length", f"is {length!r}; it must be a number of at least {MIN_LENGTH}.")
        return length

    def _expansion(self) -> Expansion | None:
        stated = self._settings.get("query_expansion")
        if stated is None:
            return None
        if not isinstance(stated, dict) or set(stated) - _EXPANSION_KEYS:
            raise refusal(self._file, "query_expansion", f"is {stated!r}, which is not understood.")
        if stated.get("strategy") not in ("fixed", "min"):
            raise refusal(self._file, "query_expansion.strategy", f"is {stated.get('strategy')!r}.")
        length, longest = stated.get("length"), self._encoder.words.longest
        if type(length) is not int or not MIN_LENGTH <= length <= longest:
            raise refusal(self._file, "query_expansion.length", f"is {length!r}; it must be {MIN_LENGTH} to {longest}.")
        if type(stated.get("attend", False)) is not bool:
            raise refusal(self._file, "query_expansion.attend", f"is {stated['attend']!r}; it must be true or false.")
        if self._encoder.words.pads_left:
            raise refusal("tokenizer_config.json", "padding_side", "is left, and queries are expanded on the right.")
        return Expansion(length, self._expansion_id(stated.get("token")), bool(stated.get("attend", False)))

    def _expansion_id(self, token: Any) -> int:
        words = self._encoder.words
        if token is None:
            number = next((words.id_of(name) for name in ("mask_token", "eos_token") if words.id_of(name) >= 0), -1)
        else:
            number = words.ids.get(str(token), -1)
        if number < 0:
            raise refusal(self._file, "query_expansion.token", f"is {token!r}, and the vocabulary has no such token.")
        return number

    def _skipped_ids(self, mask: Json) -> tuple[int, ...]:
        """Ids of the words that give no vector; a word that is no token of its own is none of them."""
        words, unknown = self._encoder.words, self._encoder.words.named.get("unk_token")
        found = {words.ids[word] for word in mask.get("skiplist_words") or [] if word in words.ids}
        wants_unknown = unknown in (mask.get("skiplist_words") or [])
        return tuple(sorted(found if wants_unknown else found - {words.id_of("unk_token")}))
