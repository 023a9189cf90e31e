"""Attention within each text of a packed row, against one text at a time."""

from __future__ import annotations

import types
from itertools import pairwise

import pytest
import torch
from transformers import AttentionInterface

from shoal.runtimes.torch import attention
from shoal.runtimes.torch.attention import PACKED, CannotPack, Segments, packed

LENGTHS = (9, 9, 7, 4, 4, 4, 1)
attend = AttentionInterface()[PACKED]


def tensors(heads: int, shared: int, width: int = 8) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, count, sum(LENGTHS), width, generator=generator) for count in (heads, shared, shared)]


def segments() -> Segments:
    return Segments(torch.tensor([0, *LENGTHS]).cumsum(0), max(LENGTHS))


@pytest.mark.parametrize("shared", [4, 2, 1])
@pytest.mark.parametrize(("is_causal", "window"), [(False, None), (True, None), (False, 3), (True, 3), (True, 100)])
def test_each_text_sees_itself_alone(is_causal: bool, window: int | None, shared: int) -> None:
    q, k, v = tensors(4, shared)
    with packed(segments()):
        attended, _ = attend(
            types.SimpleNamespace(is_causal=is_causal), q, k, v, None, scaling=0.3, sliding_window=window
        )
    assert attended.shape == (1, sum(LENGTHS), 4, 8)
    bounds = [0, *torch.tensor(LENGTHS).cumsum(0).tolist()]
    for start, end in pairwise(bounds):
        expected = plain(*(x[0, :, start:end] for x in (q, k, v)), is_causal=is_causal, window=window)
        torch.testing.assert_close(attended[0, start:end].transpose(0, 1), expected)


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, window: int | None) -> torch.Tensor:
    """softmax(0.3 q k^T) v over the keys that a query sees, a window counting the token itself."""
    k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
    ages = torch.arange(q.shape[1])[:, None] - torch.arange(q.shape[1])
    is_seen = (ages >= 0) if is_causal else torch.ones_like(ages, dtype=torch.bool)
    if window is not None:
        is_seen &= ages.abs() < window
    return torch.softmax((0.3 * q @ k.mT).masked_fill(~is_seen, -torch.inf), -1) @ v


def test_a_callers_word_on_causality_goes_before_the_modules() -> None:
    q, k, v = tensors(2, 2)
    module = types.SimpleNamespace(is_causal=True)
    with packed(segments()):
        asked, _ = attend(module, q, k, v, None, is_causal=False)
        other, _ = attend(types.SimpleNamespace(is_causal=False), q, k, v, None)
        causal, _ = attend(module, q, k, v, None)
    torch.testing.assert_close(asked, other)
    assert not torch.allclose(asked, causal)


def test_texts_of_one_length_side_by_side_are_one_stretch() -> None:
    assert segments().stretches == [(0, 2, 9, 9), (18, 1, 7, 7), (25, 3, 4, 4), (37, 1, 1, 1)]
    assert Segments(torch.tensor([0, 4, 4, 4, 8]), 4).stretches == [(0, 1, 4, 4), (4, 1, 4, 4)]


@pytest.mark.parametrize("what", ["softcap", "s_aux", "position_bias"])
def test_what_it_does_not_do_it_refuses(what: str) -> None:
    q, k, v = tensors(2, 2)
    with packed(segments()), pytest.raises(CannotPack, match=what):
        attend(types.SimpleNamespace(is_causal=False), q, k, v, None, **{what: 1.0})
    with packed(segments()), pytest.raises(CannotPack, match="attention_mask"):
        attend(types.SimpleNamespace(is_causal=False), q, k, v, torch.ones(1))
    with packed(segments()), pytest.raises(CannotPack, match="shapes"):
        attend(types.SimpleNamespace(is_causal=False), q, k[:, :, 1:], v[:, :, 1:], None)


@pytest.mark.parametrize("has_groups", [True, False])
@pytest.mark.parametrize("shared", [4, 2])
@pytest.mark.parametrize(("is_causal", "window"), [(False, None), (True, None), (False, 3), (True, 3)])
def test_the_varlen_kernel_is_given_the_same_texts_windows_and_heads(
    monkeypatch: pytest.MonkeyPatch, is_causal: bool, window: int | None, shared: int, has_groups: bool
) -> None:
    """torch's kernel is for CUDA alone: one in its place, with its parameters, of late with `enable_gqa` among them."""

    def attend_in_place(
        query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, scale, window_size, enable_gqa=False
    ) -> torch.Tensor:
        assert enable_gqa == (has_groups and query.shape[1] != key.shape[1])
        assert max_q == max_k == max(LENGTHS)
        assert cu_seq_q is cu_seq_k
        assert scale == 0.3
        before, after = window_size
        assert (before, after) in {(-1, -1), (-1, 0), (2, 2), (2, 0)}
        texts = [
            plain(
                *(x[start:end].transpose(0, 1) for x in (query, key, value)),
                is_causal=after == 0,
                window=None if before < 0 else before + 1,
            )
            for start, end in pairwise(cu_seq_q.tolist())
        ]
        return torch.cat([text.transpose(0, 1) for text in texts])

    def ungrouped(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, scale, window_size) -> torch.Tensor:
        assert query.shape[1] == key.shape[1]
        return attend_in_place(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, scale, window_size)

    module = types.SimpleNamespace(is_causal=is_causal)
    q, k, v = tensors(4, shared)
    with packed(segments()):
        expected, _ = attend(module, q, k, v, None, scaling=0.3, sliding_window=window)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", attend_in_place if has_groups else ungrouped)
    monkeypatch.setattr(attention, "has_varlen_kernel", lambda device, dtype: True)
    attention._varlen_parameters.cache_clear()
    with packed(segments()):
        attended, _ = attend(module, q, k, v, None, scaling=0.3, sliding_window=window)
    attention._varlen_parameters.cache_clear()
    torch.testing.assert_close(attended, expected)
