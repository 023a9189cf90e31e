"""The fake family's tokenizer: ids from a text's bytes alone, about one for four bytes, no file. Ships for tests.

Different texts get different ids, so that the fake runtime's vectors betray a mix-up. A text that starts with
`fault:NAME` (`fault:crash`, `fault:nan`, ... of `runtimes.fake.FAULT_IDS`) starts with the id that causes the fault.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shoal.adapters.tokenizing import Ids, PairLayout, Spans
from shoal.catalog.spec import Tokenization
from shoal.runtimes.fake import FAULT_IDS, FIRST_ORDINARY_ID

__all__ = ["FakeTokenizer"]

_BYTES_A_TOKEN = 4
_NUM_IDS = 2**31 - 1 - FIRST_ORDINARY_ID


class FakeTokenizer:
    """As `tokenizing.TextTokenizer`, without special tokens."""

    prefix: Ids = []
    suffix: Ids = []
    num_special = 0
    pair = PairLayout()

    def __init__(self, tokenization: Tokenization) -> None:
        """Takes what its real sibling takes, and needs none of it."""

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text, at least one."""
        return [_ids(text) for text in texts]

    def encode_spans(self, texts: Sequence[str]) -> list[Spans]:
        """As `encode`; each token stands where its bytes do."""
        return [_spans(text) for text in texts]

    def continues_word(self, text: str, spans: Spans) -> list[bool]:
        """Each is a word."""
        return [False] * len(spans.ids)

    def names(self, ids: Ids) -> list[str]:
        """There is no vocabulary: their numbers."""
        return [str(token) for token in ids]

    def decode(self, ids: Ids, *, skips_special: bool) -> str:
        """Their numbers."""
        return " ".join(self.names(ids))

    def with_special(self, ids: Ids) -> npt.NDArray[np.int32]:
        """int32 [num_tokens]."""
        return np.array(ids, np.int32)


def _spans(text: str) -> Spans:
    ids, content = _ids(text), text.encode()
    num_pieces = -(-max(len(content), 1) // _BYTES_A_TOKEN)
    ends = [len(content[: _BYTES_A_TOKEN * (place + 1)].decode(errors="ignore")) for place in range(num_pieces)]
    return Spans(ids, [(0, 0)] * (len(ids) - num_pieces) + list(zip([0, *ends], ends, strict=False)))


def _ids(text: str) -> Ids:
    content = text.encode()
    pieces = range(0, max(len(content), 1), _BYTES_A_TOKEN)
    # The place goes into the hash: the same four bytes elsewhere are another token.
    ids = [
        FIRST_ORDINARY_ID + zlib.crc32(content[start : start + _BYTES_A_TOKEN], start) % _NUM_IDS for start in pieces
    ]
    fault = next((fault_id for name, fault_id in FAULT_IDS.items() if text.startswith(f"fault:{name}")), None)
    return ids if fault is None else [fault, *ids]
