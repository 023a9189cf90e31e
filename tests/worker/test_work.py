"""A model's costs and quantum as batches go by."""

import numpy as np
import pytest

from shoal.adapters import open_adapter
from shoal.adapters.base import Prepared, runs_by_item
from shoal.runtimes.base import SessionFacts
from shoal.worker.cost import CostModel
from shoal.worker.work import Model
from worker.station import SPEC

FACTS = SessionFacts("fake", "1", "fake", "float32", 0)


def model(cost: CostModel, max_tokens: int = 32_768, max_items: int = 1024) -> Model:
    return Model(SPEC, open_adapter(SPEC), FACTS, cost, 0.25, max_tokens, max_items, load_s=1.0)


def test_a_measurement_that_was_disturbed_is_put_right_by_faster_batches() -> None:
    true, measured = CostModel(0.001, 1e-5), CostModel(0.01, 1e-4)
    one = model(measured)
    before = one.quantum_tokens
    changes = [one.observe(1000, true.seconds(1000)) for _ in range(20)]
    assert sum(changes) == 1
    assert one.cost.c_s == pytest.approx(true.c_s, rel=0.05)
    assert one.quantum_tokens > 7 * before


def test_load_makes_batches_be_expected_later_and_leaves_costs_and_quantum_alone() -> None:
    one = model(CostModel(0.001, 1e-5))
    before = one.state
    assert not any(one.observe(1000, 0.022) for _ in range(200))
    assert one.state == before
    assert one.expected_s(1000) == pytest.approx(0.022, rel=0.01)


def test_a_batch_that_did_not_fit_halves_the_quantum_until_memory_may_be_free_again() -> None:
    one = model(CostModel(0.001, 1e-5), max_tokens=4_000)
    assert one.halve_tokens(4_000)
    assert one.quantum_tokens == 2_000
    for _ in range(100):
        one.observe(1000, 0.001)
    assert one.quantum_tokens == 2_000
    assert one.double_tokens()
    assert one.quantum_tokens == 4_000
    assert not one.double_tokens()


def test_the_quantum_never_falls_below_the_longest_item() -> None:
    one = model(CostModel(0.001, 1e-5))
    one.halve_tokens(20)
    assert one.quantum_tokens == 512
    assert not one.halve_tokens(20)


def test_seconds_of_work_are_counted_in_the_batches_that_there_will_be() -> None:
    """Short items fill a batch by their number, long before it has its tokens."""
    one = model(CostModel(0.01, 1e-5), max_items=10)
    for _ in range(200):
        one.count_chunk(num_tokens=40, num_items=2, priority="default", seconds=0.0)
    one.hold(1_000)
    assert one.full_batch_tokens == pytest.approx(200, rel=0.01)
    assert one.held_s == pytest.approx(5 * one.cost.seconds(200), rel=0.01)


def test_runs_belong_to_the_items_that_they_follow() -> None:
    """A query that rides along belongs to none; an item may be any number of runs."""

    def run(num_tokens: int, **fields: bool) -> Prepared:
        return Prepared(np.arange(num_tokens, dtype=np.int32), **fields)

    runs = [run(9, is_shared=True), run(1), run(2), run(3, continues=True), run(4, continues=True), run(5)]
    assert [[one.cost for one in runs] for runs in runs_by_item(runs)] == [[1], [2, 3, 4], [5]]
