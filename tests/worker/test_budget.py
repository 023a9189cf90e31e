"""Who is evicted: idle ones first, the least recently used; nobody before the turn is over; no more than it takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.worker.budget import Choice, Resident, choose


def resident(id: str, num_bytes: int = 100, **fields: object) -> Resident:
    return Resident(id, num_bytes, **{"ready_at": 0.0, "used_at": 0.0, "load_s": 0.5, **fields})  # type: ignore[arg-type]


def test_the_least_recently_used_idle_model_goes_first() -> None:
    models = [resident("a", used_at=3.0), resident("b", used_at=1.0), resident("c", used_at=0.0, is_busy=True)]
    assert choose(models, 100, now=100.0).victims == ("b",)
    assert choose(models, 101, now=100.0).victims == ("b", "a")
    assert choose(models, 201, now=100.0).victims == ("b", "a", "c")


def test_nobody_goes_before_the_turn_is_over_and_it_is_said_when_that_is() -> None:
    models = [resident("idle", ready_at=10.0, load_s=3.0), resident("busy", ready_at=10.0, load_s=1.0, is_busy=True)]
    assert choose(models, 100, now=15.9) == Choice((), again_at=16.0)
    assert choose(models, 100, now=16.0).victims == ("idle",)
    assert choose(models, 150, now=17.9) == Choice((), again_at=18.0)
    assert choose(models, 150, now=18.0).victims == ("idle", "busy")


def test_pinned_models_stay_even_when_it_is_urgent() -> None:
    models = [resident("pinned", is_pinned=True), resident("new", ready_at=99.0)]
    assert choose(models, 100, now=100.0, is_urgent=True).victims == ("new",)
    assert choose(models, 101, now=100.0, is_urgent=True) == Choice(())


def test_small_ones_are_spared_when_a_large_one_has_to_go_anyway() -> None:
    models = [resident("small", 10, used_at=0.0), resident("large", 500, used_at=1.0)]
    assert choose(models, 400, now=100.0).victims == ("large",)


residents = st.builds(
    resident,
    st.uuids().map(str),
    st.integers(0, 100),
    ready_at=st.floats(0, 10),
    used_at=st.floats(0, 10),
    load_s=st.floats(0, 3),
    is_busy=st.booleans(),
    is_pinned=st.booleans(),
)


@given(st.lists(residents, max_size=8), st.integers(1, 300), st.floats(0, 40))
def test_enough_goes_or_nobody_and_none_in_vain(models: list[Resident], missing: int, now: float) -> None:
    choice = choose(models, missing, now)
    gone = [one for one in models if one.id in choice.victims]
    assert all(one.turn_ends_at <= now and not one.is_pinned for one in gone)
    if gone:
        freed = sum(one.num_bytes for one in gone)
        assert freed >= missing
        assert all(freed - one.num_bytes < missing for one in gone)
    else:
        assert sum(one.num_bytes for one in models if one.turn_ends_at <= now) < missing
        assert choice.again_at > now


@pytest.mark.parametrize("num_bytes", [0, 5])
def test_an_empty_device_has_nobody_to_evict(num_bytes: int) -> None:
    assert choose([], num_bytes + 1, now=0.0) == Choice(())
