"""The gate, the prediction and the verdict: pure parts, and real sessions that were made wrong on purpose."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import openvino as ov
import pytest
from openvino import opset15 as ops

from shoal.adapters import open_adapter
from shoal.catalog import resolve
from shoal.catalog.spec import ModelSpec
from shoal.runtimes.base import RuntimeOptions
from shoal.runtimes.openvino import graph as graphs
from shoal.runtimes.openvino import pooling
from shoal.runtimes.openvino import runtime as runtimes
from shoal.tuner.belief import Belief
from shoal.tuner.gate import Bounds, bounds_of, compare
from shoal.tuner.judging import judge
from shoal.tuner.prediction import Cost, fit_cost, highest_rate, latency_percentile_s, overhead_per_request
from shoal.types import EmbedOptions

TEXTS = [
    f"{word} is number {place}, and {word} again" for place, word in enumerate("sea tide reef shoal net".split() * 8)
]


def vectors(spec: ModelSpec, precision: str = "float32") -> Any:
    adapter = open_adapter(spec)
    session = runtimes.OpenVINORuntime().load(spec, RuntimeOptions(precision, 1))
    rows = session.run(adapter.collate(adapter.prepare(TEXTS, EmbedOptions())))["dense"]
    session.close()
    return rows


@pytest.fixture(scope="module")
def spec() -> ModelSpec:
    return resolve("sentence-transformers/all-MiniLM-L6-v2")


@pytest.fixture(scope="module")
def reference(spec: ModelSpec) -> Any:
    return vectors(spec)


def test_the_same_model_passes(reference: Any) -> None:
    found = compare(reference, reference, Bounds())
    assert found.is_kept
    assert found.p1_cosine == pytest.approx(1.0)
    assert found.overlap == 1.0


@pytest.mark.parametrize("instead", ["cls", "max"])
def test_wrong_pooling_is_discarded(
    monkeypatch: pytest.MonkeyPatch, spec: ModelSpec, reference: Any, instead: str
) -> None:
    """The files ask for the mean; a patched graph takes something else."""
    monkeypatch.setitem(pooling._MODES, "mean", pooling._MODES[instead])
    found = compare(vectors(spec), reference, bounds_of("float32"))
    assert not found.is_kept
    assert "p1 cosine" in found.problem


@pytest.mark.parametrize("precision", ["int8_weights", "int8"])
def test_weights_in_eight_bits_pass(spec: ModelSpec, reference: Any, precision: str) -> None:
    found = compare(vectors(spec, precision), reference, bounds_of(precision))
    assert found.is_kept, found.problem
    assert found.p1_cosine < 1.0 - 1e-6, "nothing was quantised"


def test_int8_without_calibration_is_discarded(
    spec: ModelSpec, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Activations forced into a range that nobody measured."""
    build = graphs.build_graph

    def uncalibrated(spec: ModelSpec) -> graphs.Graph:
        graph = build(spec)
        for node in graph.model.get_ordered_ops():
            if node.get_type_name() == "MatMul" and node.input_value(1).get_node().get_type_name() == "Constant":
                low, high = (ov.op.Constant(np.array(limit, np.float32)) for limit in (-0.1, 0.1))
                forced = ops.fake_quantize(node.input_value(0), low, high, low, high, 256)
                node.input(0).replace_source_output(forced.output(0))
        return graph

    monkeypatch.setattr(runtimes, "build_graph", uncalibrated)
    assert not compare(vectors(spec), reference, bounds_of("int8")).is_kept


def test_what_is_not_finite_or_has_another_size_is_discarded() -> None:
    rows = np.eye(4, 8, dtype=np.float32)
    broken = rows.copy()
    broken[2, 3] = np.nan
    assert compare(broken, rows, Bounds()).problem == "a vector is not finite"
    assert "vectors are [4, 7]" in compare(rows[:, :7], rows, Bounds()).problem


def test_a_task_that_suffers_is_discarded() -> None:
    rows = np.eye(4, 8, dtype=np.float32)
    assert compare(rows, rows, Bounds(), (0.395, 0.396)).is_kept
    assert "falls by 5.05%" in compare(rows, rows, Bounds(), (0.376, 0.396)).problem


def test_a_ranking_that_changes_is_discarded() -> None:
    chooser = np.random.default_rng(0)
    rows = chooser.normal(size=(64, 32)).astype(np.float32)
    shaken = rows + chooser.normal(scale=0.02, size=rows.shape).astype(np.float32)
    found = compare(shaken, rows, Bounds(cosine=0.99, overlap=1.0))
    assert found.p1_cosine > 0.99
    assert "nearest neighbours" in found.problem


def test_costs_are_fitted_and_add_up() -> None:
    cost = fit_cost([(n, 0.003 + 2e-5 * n) for n in (16, 64, 1024)] + [(64, 1.0)], 4096)
    assert cost.a_s == pytest.approx(0.003, rel=1e-3)
    assert cost.c_s == pytest.approx(2e-5, rel=1e-3)
    # A closed loop of 32 that is told to reach 1 / (a / 32 + c * 16 + f) has just that f.
    rate = 1 / (0.003 / 32 + 2e-5 * 16 + 4e-4)
    assert overhead_per_request(cost, 16, rate, 32) == pytest.approx(4e-4, rel=1e-2)


def test_predicted_rates_follow_queueing_theory() -> None:
    """With batches of one, Poisson arrivals and a fixed service time: M/D/1, whose mean wait is known."""
    cost = Cost(a_s=0.01, c_s=1e-9, quantum_tokens=1)
    rate = 50.0
    rho = rate * 0.01
    mean_s = 0.01 + rho * 0.01 / (2 * (1 - rho))
    simulated = np.mean([latency_percentile_s(cost, [1], rate, percent) for percent in range(1, 100)])
    assert simulated == pytest.approx(mean_s, rel=0.1)
    assert 50 < highest_rate(cost, [1], limit_s=0.1) < 100
    assert highest_rate(cost, [1], limit_s=0.005) == 0.0


def test_batches_that_take_longer_now_and_then_make_the_percentile() -> None:
    steady = Cost(a_s=0.01, c_s=1e-9, quantum_tokens=1)
    shaky = msgspec.structs.replace(steady, spread=(1.0,) * 19 + (3.0,))
    assert latency_percentile_s(steady, [1], 0.5, 99.0) == pytest.approx(0.01, rel=0.1)
    assert latency_percentile_s(shaky, [1], 0.5, 99.0) == pytest.approx(0.03, rel=0.1)
    assert highest_rate(shaky, [1], limit_s=0.05) < 0.7 * highest_rate(steady, [1], limit_s=0.05)


def test_a_rate_is_found_although_loads_are_disturbed() -> None:
    """One load in ten fails for nothing, and the first guess is far off: a bisection would be lost."""
    estimates = []
    for seed in range(40):
        chooser = np.random.default_rng(seed)
        belief = Belief(100 * math.exp(chooser.normal(scale=0.5)))
        for _ in range(12):
            rate = belief.rate
            holds = chooser.random() < 1 / (1 + math.exp((rate - 100) / 8)) and chooser.random() > 0.1
            belief.tell(rate, is_good=holds)
        estimates.append(belief.estimate)
    assert np.median(estimates) == pytest.approx(100, rel=0.05)
    assert np.percentile(estimates, 10) > 75
    assert np.percentile(estimates, 90) < 125


def test_a_limit_that_no_load_holds_gives_no_rate() -> None:
    belief = Belief(100)
    for _ in range(12):
        belief.tell(belief.rate, is_good=False)
    assert belief.rate < 50
    assert belief.estimate == 0.0


def test_verdicts() -> None:
    assert judge([120, 121, 119, 122], [100, 100, 100, 101]).is_better
    assert not judge([101, 101, 101, 101], [100, 100, 100, 100]).is_better, "not worth a setting"
    assert not judge([150, 90, 140, 95], [100, 100, 100, 100]).is_better
    assert not judge([500, 480, 60, 490], [100, 95, 12, 98]).is_better, "the machine was busy"
    assert not judge([200], [100]).is_better, "one pair proves nothing"
    assert not judge([0, 0, 0], [100, 100, 100]).is_better
