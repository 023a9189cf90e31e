"""What a tenant may send ahead of its turn: never more than its part of the rate, all of it for who asks for less."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.gateway.credit import Credit

DEPTH, PER_S = 1000.0, 500.0


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 1500)), min_size=1, max_size=60))
def test_nobody_sends_more_than_a_full_bucket_and_what_time_adds(asks: list[tuple[float, int]]) -> None:
    credit, now, sent = Credit(), 0.0, 0
    for pause_s, tokens in asks:
        now += pause_s
        if credit.left("a", DEPTH, PER_S, now) >= tokens:
            credit.draw("a", tokens, DEPTH, PER_S, now)
            sent += tokens
        assert sent <= DEPTH + PER_S * now + 1e-3
        assert credit.left("b", DEPTH, PER_S, now) == DEPTH


def test_who_asks_for_less_than_its_part_always_may() -> None:
    credit = Credit()
    for step in range(1000):
        assert credit.left("a", DEPTH, PER_S, step / 10) >= 49
        credit.draw("a", 49, DEPTH, PER_S, step / 10)


def test_turns_taken_beyond_an_empty_bucket_are_not_owed() -> None:
    credit = Credit()
    for _ in range(50):
        credit.draw("a", 900, DEPTH, PER_S, 10.0)
    assert credit.left("a", DEPTH, PER_S, 10.0) == 0.0
    assert credit.left("a", DEPTH, PER_S, 12.0) == pytest.approx(DEPTH)


def test_full_buckets_are_not_kept() -> None:
    credit = Credit()
    for number in range(5000):
        credit.draw(f"tenant {number}", 100, DEPTH, PER_S, float(number))
    assert len(credit._drawn) <= 1025
