"""The pure parts: histogram, arrivals, the search for a rate, texts."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.bench.arrivals import bursts, poisson, read_trace
from shoal.bench.histogram import Histogram
from shoal.bench.measure import RateSearch
from shoal.bench.plan import Arrivals, Measured
from shoal.bench.texts import MIXES, read_texts, runs_of_words
from shoal.errors import InvalidRequest


def filled(durations: list[float]) -> Histogram:
    histogram = Histogram()
    for duration in durations:
        histogram.add(duration)
    return histogram


@given(st.lists(st.floats(1e-5, 1e4), min_size=1, max_size=200), st.sampled_from([1.0, 50.0, 90.0, 99.0, 100.0]))
def test_percentiles_are_right_within_one_percent(durations: list[float], percent: float) -> None:
    exact = sorted(durations)[max(1, math.ceil(percent / 100 * len(durations) - 1e-9)) - 1]
    assert exact * 0.999 <= filled(durations).percentile_s(percent) <= exact * 1.011


def test_histograms_add_up_and_what_failed_is_slower_than_everything() -> None:
    one, other = filled([0.1] * 98), filled([0.2])
    other.fail()
    total = Histogram.sum([one, other])
    assert (total.num_ended, total.num_failed) == (99, 1)
    assert total.percentile_s(99) == pytest.approx(0.2)
    assert total.percentile_s(99.5) == math.inf
    assert total.mean_s == pytest.approx((98 * 0.1 + 0.2) / 99)
    assert total.shares()[-1] == (pytest.approx(0.2), pytest.approx(0.99))
    assert math.isnan(Histogram().percentile_s(50))


def test_poisson_arrivals_have_the_rate_and_its_variance() -> None:
    offsets = poisson(1000, 20, seed=1)
    assert offsets == poisson(1000, 20, seed=1) != poisson(1000, 20, seed=2)
    gaps = [after - before for before, after in itertools.pairwise(offsets)]
    mean = sum(gaps) / len(gaps)
    assert len(offsets) == pytest.approx(20_000, rel=0.03)
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) == pytest.approx(mean**2, rel=0.1)


def test_bursts_keep_the_mean_rate() -> None:
    offsets = bursts(1000, 20, 10, seed=1)
    assert len(offsets) == pytest.approx(20_000, rel=0.1)
    assert len(set(offsets)) == len(offsets) / 10


def test_a_trace_starts_at_zero_in_order_and_may_be_faster(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text('12.5\n10\n{"at_s": 11, "user": 3}\n\n')
    assert read_trace(tmp_path / "trace", speed=2) == [0, 0.5, 1.25]
    (tmp_path / "bad").write_text("1\nsoon\n")
    with pytest.raises(InvalidRequest, match="Line 2 of"):
        read_trace(tmp_path / "bad")


@given(st.floats(0.5, 5000), st.floats(0.5, 5000))
def test_the_search_ends_just_below_what_is_too_much(start: float, most: float) -> None:
    search, num_trials = RateSearch(start), 0
    while (rate := search.next_rate) is not None:
        search.tell(is_good=rate <= most)
        num_trials += 1
    assert most / 1.06 <= search.best <= most
    assert num_trials < 25


def test_a_search_where_nothing_is_good_ends_with_nothing() -> None:
    search = RateSearch(100)
    while search.next_rate is not None:
        search.tell(is_good=False)
    assert search.best == 0


def test_processes_share_a_load_without_loss() -> None:
    trace = tuple(float(second) for second in range(7))
    shares = [Arrivals("trace", 90.0, 1, trace, 5).share(number, 3) for number in range(3)]
    assert sorted(offset for share in shares for offset in share.trace) == list(trace)
    assert (sum(share.rate for share in shares), sum(share.concurrency for share in shares)) == (90, 5)


def test_a_late_generator_is_doubted_by_the_latency_that_matters() -> None:
    measured = Measured(filled([0.02] * 100), filled([0.004] * 100), {})
    assert "late" in measured.doubts()[0]
    assert measured.doubts(limit_s=0.05) == []
    assert "core" in Measured(filled([1.0]), filled([0.0]), {}, cpu_share=0.95).doubts()[0]


@pytest.mark.parametrize("name", MIXES)
def test_mixes_have_the_lengths_they_say(name: str) -> None:
    mix = MIXES[name]
    for source in (None, ["three words here", "and five more of them"]):
        texts = runs_of_words(mix, 200, seed=3, source=source)
        assert texts == runs_of_words(mix, 200, seed=3, source=source)
        lengths = [len(text.split()) for text in texts]
        assert mix.least <= min(lengths) <= max(lengths) <= mix.most


def test_texts_are_lines_or_objects(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\n two \n")
    (tmp_path / "a.jsonl").write_text('{"title": "A", "text": "b"}\n{"text": "c"}\n')
    assert read_texts(tmp_path / "a.txt") == ["one", "two"]
    assert read_texts(tmp_path / "a.jsonl") == ["A b", "c"]
    (tmp_path / "b.jsonl").write_text('{"body": "c"}\n')
    with pytest.raises(InvalidRequest, match="Line 1 of"):
        read_texts(tmp_path / "b.jsonl")


def test_poisson_rates_far_apart_have_many_arrivals() -> None:
    chooser = random.Random(0)
    for _ in range(5):
        rate = chooser.uniform(10, 1000)
        assert len(poisson(rate, 1000 / rate, 1)) == pytest.approx(1000, rel=0.15)
