"""What an adapter is: the meaning of a model family, in NumPy and tokenizers, without an inference library.

Runs in the worker's sidecar, possibly in a thread: an adapter holds no state that a call changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.runtimes.base import Arrays, Features
from shoal.types import EmbedOptions

__all__ = ["Adapter", "Prepared", "Vectors"]


class Prepared(msgspec.Struct, frozen=True):
    """One item, ready for the device.

    Attributes:
        token_ids: int32 [num_tokens], special tokens included, after truncation.
        pool_from: leading tokens that pooling leaves out.
        was_truncated: whether text was cut away.
    """

    token_ids: npt.NDArray[np.int32]
    pool_from: int = 0
    was_truncated: bool = False

    @property
    def cost(self) -> int:
        """Tokens: what scheduling counts from here on."""
        return int(self.token_ids.shape[0])


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


class Adapter(Protocol):
    """prepare (CPU) -> run (device, elsewhere) -> finish (CPU)."""

    def check(self, options: EmbedOptions) -> None:
        """Refuse options that this model cannot honour, before any work.

        Raises:
            InvalidRequest: names the field, the value and what is allowed.
        """
        ...

    def prepare(self, items: Sequence[str | list[int]], options: EmbedOptions, first_item: int = 0) -> list[Prepared]:
        """Texts, or token ids of the model's own vocabulary, to device-ready items, in order.

        Raises:
            InvalidRequest: an item is unusable; `param` is `input[first_item + i]`.
            ContextLengthExceeded: a text is too long and `truncate` is False; states given and allowed tokens.
        """
        ...

    def collate(self, items: Sequence[Prepared]) -> Features:
        """Items to one ragged batch."""
        ...

    def finish(self, raw: Arrays, options: EmbedOptions) -> Vectors:
        """Rows of raw output to vectors: cut, renormalise, quantise. All rows share the options.

        Raises:
            InternalError: a row is not finite or has no length; names the row.
        """
        ...
