"""Attention within each text of a packed forward, under the name by which transformers calls it.

Texts lie one after another in one row; `packed` says where they begin. On CUDA in half precision one kernel (flash
attention with cumulative lengths) does all texts; elsewhere texts of one length, which lie side by side, are one
batch. Neither computes anything for padding, as there is none.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property
from itertools import groupby, pairwise
from typing import Any, cast

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

__all__ = ["PACKED", "CannotPack", "Segments", "has_varlen_kernel", "packed"]

PACKED = "shoal_packed"
"""The attention implementation of a model that runs packed."""


class CannotPack(Exception):
    """The model's attention needs something that packed attention does not do."""


class Segments:
    """Where the texts of a packed forward lie.

    Args:
        starts: int32 [n + 1] on the device: where each text begins and the last one ends.
        longest: tokens of the longest text, or more.
        key_starts: as `starts`, counting only tokens that are looked at; None = all are.
        key_places: where these tokens lie.
    """

    def __init__(
        self,
        starts: torch.Tensor,
        longest: int,
        key_starts: torch.Tensor | None = None,
        key_places: torch.Tensor | None = None,
    ) -> None:
        self.starts = starts
        self.longest = longest
        self.key_starts = key_starts
        self.key_places = key_places
        self._bands: dict[tuple[int, tuple[int, int]], torch.Tensor] = {}

    @cached_property
    def stretches(self) -> list[tuple[int, int, int, int]]:
        """(start, texts, tokens a text, keys a text) of each stretch of texts that are alike. Waits for the device.

        Keys are the leading tokens of a text that are looked at.
        """
        bounds = self.starts.tolist()
        lengths = [end - start for start, end in pairwise(bounds)]
        keys = lengths
        if self.key_starts is not None:
            keys = [end - start for start, end in pairwise(self.key_starts.tolist())]
        stretches, start = [], bounds[0]
        for (length, num_keys), group in groupby(zip(lengths, keys, strict=True)):
            count = len(list(group))
            if length:
                stretches.append((start, count, length, num_keys))
            start += count * length
        return stretches

    def band(self, length: int, window: tuple[int, int]) -> torch.Tensor:
        """Bool [length, length]: which keys a query sees within (before, after) of itself, -1 for all."""
        if (length, window) not in self._bands:
            places = torch.arange(length, device=self.starts.device)
            distance = places[:, None] - places[None, :]
            before, after = (length if reach < 0 else reach for reach in window)
            self._bands[length, window] = (distance <= before) & (-distance <= after)
        return self._bands[length, window]


_segments: ContextVar[Segments] = ContextVar("segments")


@contextmanager
def packed(segments: Segments) -> Iterator[None]:
    """Models called in here see these texts."""
    token = _segments.set(segments)
    try:
        yield
    finally:
        _segments.reset(token)


@cache
def has_varlen_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether one kernel can do texts of many lengths: flash attention in torch itself, with windows (torch 2.11)."""
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0) and "window_size" in _varlen_parameters()


@cache
def _varlen_parameters() -> frozenset[str]:
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return frozenset()
    return frozenset(inspect.signature(varlen_attn).parameters)


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Called by transformers with [1, heads, tokens, width] each; returns [1, tokens, heads, width].

    Raises:
        CannotPack: a mask, a bias, a soft cap or sinks; or heads that keys and values do not share.
    """
    for name, given in {"attention_mask": attention_mask, **{name: others.get(name) for name in _UNKNOWN}}.items():
        if given is not None:
            raise CannotPack(name)
    if query.shape[0] != 1 or query.shape[2] != key.shape[2] or key.shape[-1] != value.shape[-1]:
        raise CannotPack(f"shapes {tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}")
    segments = _segments.get()
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    # As transformers' flash attention: a window counts the token itself.
    reach = -1 if sliding_window is None or sliding_window > segments.longest else sliding_window - 1
    window = (reach, 0 if causal else reach)
    if segments.key_starts is not None and window != _FULL:
        raise CannotPack("windows beside tokens that are not looked at")
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    is_kernel_width = q.shape[-1] % 8 == 0 and q.shape[-1] <= 256
    attend = _attend_varlen if is_kernel_width and has_varlen_kernel(q.device, q.dtype) else _attend_by_length
    return attend(q, k, v, segments, scaling, window)[None], None


_UNKNOWN = ("softcap", "s_aux", "position_bias")
_FULL, _CAUSAL = (-1, -1), (-1, 0)
_PLAIN = (_FULL, _CAUSAL)


def _attend_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    segments: Segments,
    scale: float | None,
    window: tuple[int, int],
) -> torch.Tensor:
    """All texts in one kernel: [tokens, heads, width] each, keys and values with as many heads or fewer."""
    from torch.nn.attention.varlen import varlen_attn

    grouped: dict[str, Any] = {}
    if q.shape[1] != k.shape[1]:
        if "enable_gqa" in _varlen_parameters():
            grouped = {"enable_gqa": True}
        else:
            k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    starts, longest = segments.starts, segments.longest
    key_starts = starts
    if segments.key_starts is not None and segments.key_places is not None:
        key_starts = segments.key_starts
        k, v = (x[segments.key_places] for x in (k, v))
    attended = varlen_attn(q, k, v, starts, key_starts, longest, longest, scale=scale, window_size=window, **grouped)
    return cast(torch.Tensor, attended)


def _attend_by_length(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    segments: Segments,
    scale: float | None,
    window: tuple[int, int],
) -> torch.Tensor:
    """As `_attend_varlen`, one batch for each length."""
    attended = torch.empty_like(q, memory_format=torch.contiguous_format)
    for start, count, length, num_keys in segments.stretches:
        end = start + count * length
        queries, keys, values = (x[start:end].view(count, length, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
        keys, values = keys[:, :, :num_keys], values[:, :, :num_keys]
        result = scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=None if window in _PLAIN else segments.band(length, window),
            is_causal=window == _CAUSAL,
            scale=scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        attended[start:end] = result.transpose(1, 2).reshape(count * length, *q.shape[1:])
    return attended


AttentionInterface.register(PACKED, _attend)
