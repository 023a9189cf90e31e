"""Window and rate of a model's workers, from what they announce and what comes back."""

from __future__ import annotations

import pytest

from shoal.gateway.supply import HAND_OVER_S, LEAST_SHARE, UNKNOWN_WINDOW_TOKENS, Supply
from shoal.types import LoadedModel


def ready(a_s: float, c_s: float, quantum_tokens: int) -> LoadedModel:
    return LoadedModel("m", "ready", a_s=a_s, c_s=c_s, quantum_tokens=quantum_tokens)


def test_the_window_holds_two_batches_a_worker_and_the_hand_over() -> None:
    supply = Supply()
    assert supply.window_tokens == UNKNOWN_WINDOW_TOKENS
    supply.know([ready(0.01, 1e-5, 1000)])
    one = 2 * 1000 + HAND_OVER_S * 1000 / 0.02
    assert supply.window_tokens == pytest.approx(one)
    assert supply.tokens_per_s == pytest.approx(50_000)
    supply.know([ready(0.01, 1e-5, 1000)] * 3)
    assert supply.window_tokens == pytest.approx(3 * one)
    assert supply.tokens_per_s == pytest.approx(150_000)
    supply.know([])
    assert supply.window_tokens == UNKNOWN_WINDOW_TOKENS


def test_the_window_is_in_estimated_tokens() -> None:
    """Texts that turn out to be a third of their estimate need a window of three times as many estimated tokens."""
    supply = Supply()
    supply.know([ready(0.01, 1e-5, 1000)])
    before, rate = supply.window_tokens, supply.tokens_per_s
    for _ in range(1000):
        supply.learn(900, 300)
    assert supply.window_tokens == pytest.approx(3 * before, rel=0.01)
    assert supply.tokens_per_s == pytest.approx(3 * rate, rel=0.01)


@pytest.mark.parametrize("true_per_s", [6_000, 20_000, 200_000])
def test_what_comes_back_to_a_crowd_is_believed(true_per_s: int) -> None:
    """Whatever the workers announce: here 50,000 a second. Batches come back in lumps."""
    supply = Supply()
    supply.know([ready(0.01, 1e-5, 1000)])
    supply.count(0, 100.0, is_crowded=True)
    for step in range(1, 21):
        supply.count(true_per_s // 10, 100.0 + step / 10, is_crowded=True)
    assert supply.tokens_per_s == pytest.approx(true_per_s, rel=0.02)


def test_time_without_a_crowd_does_not_count_and_what_is_long_ago_is_forgotten() -> None:
    supply = Supply()
    supply.know([ready(0.01, 1e-5, 1000)])
    supply.count(0, 0.0, is_crowded=True)
    for second in range(1, 11):
        supply.count(10_000, float(second), is_crowded=second < 10)
    supply.count(0, 10.5, is_crowded=True)
    assert supply.tokens_per_s == pytest.approx(10_000, rel=0.01)
    supply.count(0, 10.5, is_crowded=False)
    supply.count(0, 100.0, is_crowded=True)
    assert supply.tokens_per_s == pytest.approx(50_000, rel=0.01)


def test_other_workers_are_another_rate() -> None:
    supply = Supply()
    supply.know([ready(0.01, 1e-5, 1000)])
    supply.count(0, 0.0, is_crowded=True)
    supply.count(10, 10.0, is_crowded=True)
    assert supply.tokens_per_s == pytest.approx(LEAST_SHARE * 50_000)  # they stall
    supply.know([ready(0.01, 1e-5, 1000)] * 2)
    assert supply.tokens_per_s == pytest.approx(100_000)
