"""What an adapter is: the meaning of a model family, in NumPy and tokenizers, without an inference library.

Runs in the worker's sidecar, possibly in a thread: an adapter holds no state that a call changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.runtimes.base import Arrays, Features
from shoal.types import Entity, Options

__all__ = [
    "Adapter",
    "Entities",
    "Finished",
    "Labels",
    "MultiVectors",
    "Passage",
    "Prepared",
    "Scores",
    "SparseVectors",
    "TokenLists",
    "Tokens",
    "Vectors",
    "WrittenTexts",
    "runs_by_item",
]


class Tokens(msgspec.Struct, frozen=True):
    """The tokens of a text.

    Attributes:
        ids: in the model's vocabulary.
        tokens: their names there.
        texts: what of the text each stands for; of a special token, its name.
        offsets: where that is, in code points of the text as it was sent; (0, 0) of special tokens and of a prompt.
        special: whether each was put around the text.
    """

    ids: list[int]
    tokens: list[str]
    texts: list[str]
    offsets: list[tuple[int, int]]
    special: list[bool]


class Passage(msgspec.Struct, frozen=True):
    """A text and its tokens, special ones not included; places are code points of the text as it was sent.

    Attributes:
        starts, ends: int32 [num_tokens], where each token stands.
        continues_word: bool [num_tokens], whether it belongs to the same word as the token before it.
    """

    text: str
    starts: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int32]
    continues_word: npt.NDArray[np.bool_]

    def cut(self, num_tokens: int) -> Passage:
        """The same, of its first tokens alone."""
        starts, ends = self.starts[:num_tokens], self.ends[:num_tokens]
        return Passage(self.text, starts, ends, self.continues_word[:num_tokens])


class Prepared(msgspec.Struct, frozen=True):
    """A text, a window of one, or a pair of texts, ready for the device; as a rule one an item.

    Attributes:
        token_ids: int32 [num_tokens], special tokens included, after truncation.
        pool_from: leading tokens that pooling leaves out.
        was_truncated: whether text was cut away.
        token_type_ids: int32 [num_tokens], None = all zero.
        is_shared: whether it belongs to no item of its own, as the query to which documents are compared.
        continues: whether it belongs to the same item as the run before it; else it is the first run of the next item.
        kept: bool [num_tokens], the tokens that have a row in the output multivector; None = none of them.
        num_keys: how many leading tokens the others look at; 0 = all.
        result: what the caller wants, where preparing was all that there is to do.
        passage: the whole text that it is a window of, where the places of tokens matter.
        first_token: place in the passage of its first token that is not a special one.
    """

    token_ids: npt.NDArray[np.int32]
    pool_from: int = 0
    was_truncated: bool = False
    token_type_ids: npt.NDArray[np.int32] | None = None
    is_shared: bool = False
    continues: bool = False
    kept: npt.NDArray[np.bool_] | None = None
    num_keys: int = 0
    result: Tokens | str | None = None
    passage: Passage | None = None
    first_token: int = 0

    @property
    def needs_device(self) -> bool:
        """Whether it has no result yet. Of a chunk's runs, all need the device or none."""
        return self.result is None

    @property
    def cost(self) -> int:
        """Tokens: what scheduling counts from here on."""
        return int(self.token_ids.shape[0])


def runs_by_item(runs: Iterable[Prepared]) -> list[list[Prepared]]:
    """The runs of each item, in order; shared ones belong to none."""
    items: list[list[Prepared]] = []
    for run in runs:
        if run.is_shared:
            continue
        if run.continues:
            items[-1].append(run)
        else:
            items.append([run])
    return items


class Vectors(msgspec.Struct, frozen=True):
    """Finished vectors of some items.

    Attributes:
        data: [num_items, dimensions] float32 or float16 or int8; for binary uint8 [num_items, ceil(dimensions / 8)].
        dimensions: numbers a vector.
        scales: float32 [num_items] for int8 and binary, else None.
    """

    data: npt.NDArray[np.generic]
    dimensions: int
    scales: npt.NDArray[np.float32] | None = None


class SparseVectors(msgspec.Struct, frozen=True):
    """Finished sparse vectors of some items, one after another.

    Attributes:
        lengths: int32 [num_items], entries of each.
        indices: int32 [sum of lengths], ascending in each item.
        values: float32 [sum of lengths], none of them zero.
    """

    lengths: npt.NDArray[np.int32]
    indices: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]


class MultiVectors(msgspec.Struct, frozen=True):
    """Finished vectors of the tokens of some items, one after another.

    Attributes:
        lengths: int32 [num_items], vectors of each.
        vectors: all of them.
    """

    lengths: npt.NDArray[np.int32]
    vectors: Vectors


class Scores(msgspec.Struct, frozen=True):
    """float32 [num_items]: how relevant each is."""

    values: npt.NDArray[np.float32]


class Labels(msgspec.Struct, frozen=True):
    """For each item its labels and their scores, best first."""

    ranked: list[list[tuple[str, float]]]


class TokenLists(msgspec.Struct, frozen=True):
    """For each item its tokens."""

    items: list[Tokens]


class WrittenTexts(msgspec.Struct, frozen=True):
    """For each item the text that its tokens stand for."""

    items: list[str]


class Entities(msgspec.Struct, frozen=True):
    """For each item what was found in it, in the order of the text."""

    found: list[list[Entity]]


Finished = Vectors | SparseVectors | MultiVectors | Scores | Labels | Entities | TokenLists | WrittenTexts


class Adapter(Protocol):
    """prepare (CPU) -> run (device, elsewhere) -> finish (CPU)."""

    def check(self, options: Options) -> None:
        """Refuse options that this model cannot honour, before any work.

        Raises:
            UnsupportedOperation: the model does not do this.
            InvalidRequest: names the field, the value and what is allowed.
        """
        ...

    def prepare(self, items: Sequence[str | list[int]], options: Options, first_item: int = 0) -> list[Prepared]:
        """Texts, or token ids of the model's own vocabulary, to what the device runs, in order.

        As a rule one run an item. Further ones of the same item follow it and are marked `continues`.

        Raises:
            InvalidRequest: an item is unusable; `param` is `input[first_item + i]`.
            ContextLengthExceeded: a text is too long and `truncate` is False; states given and allowed tokens.
        """
        ...

    def collate(self, items: Sequence[Prepared]) -> Features:
        """Items, of whatever operations, to one ragged batch."""
        ...

    def finish(self, raw: Arrays, options: Options, runs: Sequence[Prepared] = ()) -> tuple[Finished, ...]:
        """The raw rows of all that `prepare` made of some items, to what the caller wants, one for each output.

        Args:
            runs: what `prepare` made; may be left out where each item is one run.

        Raises:
            InternalError: a row is not finite or has no length; names the row.
        """
        ...

    def takes_long(self, options: Options) -> bool:
        """Whether `finish` is so much work that it belongs into a thread."""
        ...
