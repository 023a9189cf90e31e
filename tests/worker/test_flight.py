"""When the device should be done, and from when on a partial batch may follow."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shoal.adapters.base import Prepared
from shoal.types import Chunk, EmbedOptions, Render
from shoal.worker.cost import CostModel
from shoal.worker.flight import FULL_LEAD_S, FULL_LEAD_SHARE, LEAD_S, Flight
from shoal.worker.work import Batch, Work, WorkItem
from worker.station import SPEC
from worker.test_work import model

MODEL = model(CostModel(0.01, 1e-5))
LEASE: Any = SimpleNamespace(published_at=0.0)
CHUNK = Chunk("r", 0, SPEC.id, EmbedOptions(), b"", "json", 1, 0, 0, "", (Render(),), deadline=1e9)


def batch(num_tokens: int) -> Batch:
    work = Work(MODEL, LEASE, CHUNK, 0.0, 0.0)
    return Batch(MODEL, [WorkItem(work, 0, Prepared(np.zeros(num_tokens, np.int32)), 0.0)])


def test_batches_run_one_after_another_and_the_lead_is_shortly_before_the_end() -> None:
    flight = Flight()
    assert not flight
    first, second = batch(1_000), batch(2_000)
    flight.add(first, now=100.0)
    assert flight.ends_at == pytest.approx(100.02)
    assert flight.lead_starts_at == pytest.approx(100.02 - LEAD_S)
    flight.add(second, now=100.001)
    assert flight.is_full
    assert flight.ends_at == pytest.approx(100.05)
    flight.remove(first, now=100.04)
    assert flight.ends_at == pytest.approx(100.07)
    assert first not in flight
    assert second in flight


def test_a_full_batch_follows_in_the_last_quarter_of_a_long_one_and_at_once_on_a_short_one() -> None:
    flight = Flight()
    flight.add(batch(9_000), now=0.0)
    assert flight.full_lead_starts_at == pytest.approx((1 - FULL_LEAD_SHARE) * 0.1)
    short = Flight()
    MODEL.pace, pace = 0.4, MODEL.pace
    short.add(batch(10), now=0.0)
    MODEL.pace = pace
    assert short.full_lead_starts_at == pytest.approx(short.ends_at - FULL_LEAD_S)
    assert short.full_lead_starts_at < 0.0


def test_a_short_batch_has_a_lead_of_half_its_time() -> None:
    flight, short = Flight(), batch(1)
    short.model.pace = 0.1
    flight.add(short, now=0.0)
    assert flight.lead_starts_at == pytest.approx(flight.ends_at / 2)
    short.model.pace = 1.0


def test_a_lost_device_gives_back_the_running_batch_first() -> None:
    flight, batches = Flight(), [batch(10), batch(20)]
    for one in batches:
        flight.add(one, now=5.0)
    assert flight.clear(now=6.0) == batches
    assert not flight
    assert flight.ends_at == 6.0
