"""Which text lies where: properties that hold for any lengths."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.roberta.modeling_roberta import RobertaEmbeddings

from shoal.runtimes.base import Features
from shoal.runtimes.torch.layout import Part, fill, pack, pad

lengths_of_texts = st.lists(st.integers(1, 600), max_size=40).map(lambda values: np.array(values, np.int32))
limits = st.integers(1, 2000)


def covers(parts: list[Part], num_items: int) -> bool:
    return sorted(item for part in parts for item in part.items.tolist()) == list(range(num_items))


@given(lengths_of_texts, limits)
def test_packing_runs_each_text_once_within_the_limit(lengths: np.ndarray, limit: int) -> None:
    parts = pack(lengths, limit)
    assert covers(parts, len(lengths))
    for part in parts:
        assert part.width == 0
        assert len(part.items) == 1 or lengths[part.items].sum() <= limit
        assert (np.diff(lengths[part.items]) <= 0).all()


@given(lengths_of_texts, limits, st.integers(0, 500))
def test_padding_runs_each_text_once_within_the_limit(lengths: np.ndarray, limit: int, overhead: int) -> None:
    parts = pad(lengths, limit, overhead)
    assert covers(parts, len(lengths))
    for part in parts:
        assert len(part.items) == 1 or len(part.items) * part.width <= limit
        assert part.width >= lengths[part.items].max()


@settings(max_examples=50)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=7), st.integers(0, 100))
def test_padding_is_as_small_as_any_grouping_can_make_it(values: list[int], overhead: int) -> None:
    lengths = np.array(sorted(values, reverse=True), np.int32)
    widths = [part.width for item in range(len(lengths)) for part in pad(lengths[item : item + 1], 10**6, 0)]

    def cost(cuts: tuple[int, ...]) -> int:
        edges = [0, *cuts, len(widths)]
        return sum(widths[a] * (b - a) + overhead for a, b in itertools.pairwise(edges))

    inner = range(1, len(widths))
    best = min(cost(cuts) for count in range(len(widths)) for cuts in itertools.combinations(inner, count))
    assert sum(part.width * len(part.items) + overhead for part in pad(lengths, 10**6, overhead)) == best


def test_widths_are_near_the_lengths_and_few() -> None:
    widths = {pad(np.array([length], np.int32), 1, 0)[0].width for length in range(1, 8193)}
    assert len(widths) < 100
    for length in range(128, 8193):
        assert pad(np.array([length], np.int32), 1, 0)[0].width <= length * (1 + 1 / 8)


BATCH = Features(
    token_ids=np.array([5, 6, 1, 7, 8, 9, 10, 11, 1, 12], np.int32),
    lengths=np.array([4, 1, 5], np.int32),
    pool_from=np.array([1, 3, 0], np.int32),
    token_type_ids=np.array([0, 0, 0, 1, 1, 0, 1, 1, 1, 1], np.int32),
)


def test_a_packed_part_is_the_texts_one_after_another() -> None:
    (part,) = pack(BATCH.lengths, 100)
    arrays = {name: array.tolist() for name, array in fill(BATCH, part, "from_zero", padding_id=1).items()}
    assert arrays == {
        "items": [2, 0, 1],
        "token_ids": [9, 10, 11, 1, 12, 5, 6, 1, 7, 8],
        "token_type_ids": [0, 1, 1, 1, 1, 0, 0, 0, 1, 1],
        "positions": [0, 1, 2, 3, 4, 0, 1, 2, 3, 0],
        "index": [0, 1, 2, 3, 4, 0, 1, 2, 3, 0],
        "is_counted": [1, 1, 1, 1, 1, 0, 1, 1, 1, 0],
        "starts": [0, 5, 9, 10],
        "pooled_from": [0, 6, 9],
    }


def test_a_padded_part_is_rows_and_where_their_tokens_are() -> None:
    arrays = {name: array.tolist() for name, array in fill(BATCH, Part(np.array([0, 1]), 6), "from_zero", 1).items()}
    assert arrays["token_ids"] == [5, 6, 1, 7, 1, 1, 8, 1, 1, 1, 1, 1]
    assert arrays["token_type_ids"] == [0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0]
    assert arrays["is_key"] == [1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0]
    assert arrays["sources"] == [0, 1, 2, 3, 6]
    assert arrays["starts"] == [0, 4, 5]


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=6))
def test_positions_after_the_padding_id_are_transformers_own(texts: list[list[int]]) -> None:
    lengths = np.array([len(text) for text in texts], np.int32)
    ids = np.array([token for text in texts for token in text], np.int32)
    batch = Features(ids, lengths, np.zeros_like(lengths))
    arrays = fill(batch, Part(np.arange(len(texts))), "after_padding_id", padding_id=1)
    expected = [RobertaEmbeddings.create_position_ids_from_input_ids(torch.tensor([text]), 1)[0] for text in texts]
    assert arrays["positions"].tolist() == torch.cat(expected).tolist()
