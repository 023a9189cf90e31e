"""Planning of rows: every text once, inside its row, little padding, few shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.runtimes.openvino.packing import Rows, num_slots, plan_rows, row_count, row_width

LENGTHS = st.lists(st.integers(1, 700), min_size=1, max_size=200)
LONG_LENGTHS = st.lists(st.integers(1, 8192), min_size=1, max_size=20)


def computed_tokens(plan: list[Rows]) -> int:
    return sum(rows.width * rows.num_rows for rows in plan)


@given(LENGTHS | LONG_LENGTHS)
@settings(deadline=None, max_examples=150)
def test_every_text_stands_once_in_its_row_and_meets_no_other(lengths: list[int]) -> None:
    plan = plan_rows(lengths)
    assert sorted(np.concatenate([rows.items for rows in plan]).tolist()) == list(range(len(lengths)))
    for rows in plan:
        taken = np.zeros((rows.num_rows, rows.width), int)
        seats = np.zeros((rows.num_rows, num_slots(rows.width)), int)
        for item, row, start, slot in zip(rows.items, rows.rows, rows.starts, rows.slots, strict=True):
            end = start + lengths[item]
            assert 0 <= start < end <= rows.width
            taken[row, start:end] += 1
            seats[row, slot] += 1
        assert taken.max() == 1
        assert seats.max() == 1


@given(st.lists(st.integers(4, 700), min_size=1, max_size=200))
@settings(deadline=None, max_examples=150)
def test_padding_is_bounded(lengths: list[int]) -> None:
    assert computed_tokens(plan_rows(lengths)) <= 1.6 * sum(lengths) + 200


@pytest.mark.parametrize(("low", "high"), [(5, 40), (8, 256), (5, 300), (100, 101), (20, 21), (3, 512)])
def test_padding_of_large_batches_is_small(low: int, high: int) -> None:
    lengths = np.random.default_rng(3).integers(low, high, 200).tolist()
    plan = plan_rows(lengths, width_cost=1 / 5000)  # the dearer wide rows are, the more padding pays
    assert computed_tokens(plan) <= 1.08 * sum(lengths)


@given(st.lists(LENGTHS, min_size=20, max_size=40))
@settings(deadline=None, max_examples=10)
def test_shapes_are_few(batches: list[list[int]]) -> None:
    plans = [rows for lengths in batches for rows in plan_rows(lengths)]
    for rows in plans:
        assert rows.num_rows in (row_count(rows.num_rows), 1024 // rows.width)
        assert rows.num_rows == 1 or rows.num_rows * rows.width <= 1024
        assert rows.width == row_width(rows.width)
    assert len({(rows.num_rows, rows.width) for rows in plans}) <= 160


@given(st.integers(1, 100_000))
def test_a_row_takes_its_text_with_little_room_to_spare(length: int) -> None:
    width = row_width(length)
    assert length <= width <= length * 1.26 + 8


@pytest.mark.parametrize(("length", "width"), [(1, 8), (8, 8), (20, 24), (100, 112), (512, 512), (513, 640)])
def test_a_lone_text_takes_a_short_row(length: int, width: int) -> None:
    (rows,) = plan_rows([length])
    assert (rows.width, rows.num_rows) == (width, 1)


def test_short_texts_do_not_pay_for_the_width_of_long_ones() -> None:
    lengths = [2000] * 4 + [10] * 400
    for rows in plan_rows(lengths):
        short = sum(lengths[item] == 10 for item in rows.items)
        assert rows.width <= 512 or short <= 8 * (rows.width - 2000) // 10
