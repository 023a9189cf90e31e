"""The simulation against what queueing theory says, and against itself."""

from __future__ import annotations

import pytest

from shoal.bench.simulate import POLICIES, Fleet, goodput, simulate, zipf
from shoal.worker.cost import CostModel

COST = CostModel(0.1, 0.0005)


def fleet(num_workers: int = 4, num_models: int = 1, over_a: float = 20, **fields: float) -> Fleet:
    return Fleet(num_workers, (1.0,) * num_models, COST, over_a * COST.a_s, 24, **fields)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_is_answered_once_and_a_seed_repeats(policy: str) -> None:
    one = simulate(fleet(num_models=3), policy, 50, 20, seed=4)
    assert one == simulate(fleet(num_models=3), policy, 50, 20, seed=4)
    assert one.latency.num_ended == pytest.approx(1000, rel=0.15)
    assert one.latency.num_failed == 0
    assert one.latency.longest_s >= 0.1 + 0.0005 * 24


def test_a_lone_worker_that_never_batches_is_an_md1_queue() -> None:
    single = Fleet(1, (1.0,), CostModel(0.01, 0.0), 0.01, 32768)  # a quantum of one request
    assert single.batch_requests == 1
    share = 0.7
    outcome = simulate(single, "round robin", share / 0.01, 2000, seed=1)
    waiting_s = share / (2 * (1 - share)) * 0.01  # Pollaczek-Khinchine, constant service
    assert outcome.latency.mean_s == pytest.approx(0.01 + waiting_s, rel=0.05)
    assert outcome.busy_share == pytest.approx(share, rel=0.03)


def test_no_policy_does_more_than_full_batches_allow() -> None:
    small = fleet(num_models=2)
    for policy in POLICIES:
        rate, outcome = goodput(small, policy, 20)
        assert outcome is not None
        assert 0 < rate <= 1.1 * small.capacity
        assert outcome.latency.percentile_s(99) <= small.objective_s


def test_pull_beats_what_does_not_look_at_models_once_there_are_many() -> None:
    many = Fleet(8, zipf(16), COST, 2.0, 24)
    pull, round_robin = (goodput(many, policy, 20)[0] for policy in ("pull", "round robin"))
    assert pull > 1.5 * round_robin


def test_hopeless_load_ends_early_and_has_failed() -> None:
    outcome = simulate(fleet(num_workers=1), "random", 5000, 20)
    assert outcome.latency.num_failed > 0
    assert outcome.latency.percentile_s(99) == float("inf")
