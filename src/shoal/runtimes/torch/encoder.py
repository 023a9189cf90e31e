"""A transformers model as a function: token ids to token states, packed or padded. Knows nothing of pooling."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from shoal.runtimes.torch.attention import PACKED, Segments, packed
from shoal.runtimes.torch.copies import Tensors
from shoal.runtimes.torch.layout import Numbering

__all__ = ["Encoder"]


class Encoder:
    """A model on its device.

    Attributes:
        model: the transformers model.
        device, dtype: of its weights.
        numbering: how it numbers positions, where it does not do that itself (packed).
        padding_id: what stands in padded rows, and what `numbering` may skip.
        takes: names of its forward's parameters.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.numbering: Numbering = "from_zero"
        padding_id = getattr(model.config, "pad_token_id", None)
        self.padding_id = padding_id if isinstance(padding_id, int) and padding_id >= 0 else 0
        self.takes = frozenset(inspect.signature(model.forward).parameters)
        self._own_attention = model.config._attn_implementation

    @property
    def can_be_asked_to_pack(self) -> bool:
        """Whether the model takes another attention function and positions from outside."""
        return "position_ids" in self.takes and bool(getattr(self.model, "_supports_attention_backend", False))

    @property
    def is_packed(self) -> bool:
        return bool(self.model.config._attn_implementation == PACKED)

    @is_packed.setter
    def is_packed(self, wanted: bool) -> None:
        self.model.set_attn_implementation(PACKED if wanted else self._own_attention)

    def states(self, part: Tensors, width: int, longest: int) -> torch.Tensor:
        """Token states [total, hidden] of what `layout.fill` made, uploaded; `width` 0 means packed.

        Raises:
            CannotPack: packed, and the model's attention needs something else.
        """
        shape = (-1, width) if width else (1, -1)
        given = {"input_ids": part["token_ids"].long().view(shape)}
        if "token_type_ids" in part and "token_type_ids" in self.takes:
            given["token_type_ids"] = part["token_type_ids"].long().view(shape)
        if width:
            states = self.model(**given, attention_mask=part["is_key"].long().view(shape)).last_hidden_state
            return states.flatten(0, 1)[part["sources"]]  # type: ignore[no-any-return]
        with packed(Segments(part["starts"], longest, part.get("key_starts"), part.get("key_places"))):
            return self.model(**given, position_ids=part["positions"].long()[None]).last_hidden_state[0]  # type: ignore[no-any-return]
