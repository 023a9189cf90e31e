"""Fitting S(tokens) = a + c * tokens, the quantum, and the measuring of both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.worker.cost import CostModel, fit, measure, quantum

SIZES = [16, 32, 64, 256, 1024, 4096]


@given(a_s=st.floats(0, 0.1), c_s=st.floats(1e-7, 1e-3))
def test_fit_finds_the_line_that_made_the_samples(a_s: float, c_s: float) -> None:
    found = fit([(size, a_s + c_s * size) for size in SIZES])
    assert found.a_s == pytest.approx(a_s, rel=1e-3, abs=1e-6)
    assert found.c_s == pytest.approx(c_s, rel=1e-3, abs=1e-9)


def test_fit_takes_the_fastest_of_equal_batches_so_one_hiccup_changes_nothing() -> None:
    clean = [(size, 0.001 + 2e-5 * size) for size in SIZES]
    hiccups = [(size, 5 * seconds) for size, seconds in clean]
    assert fit(hiccups + clean) == fit(clean)


@given(st.lists(st.tuples(st.integers(1, 10_000), st.floats(0, 10)), max_size=12))
def test_fit_is_never_negative_whatever_the_samples(samples: list[tuple[int, float]]) -> None:
    found = fit(samples)
    assert found.a_s >= 0
    assert found.c_s >= 0


@pytest.mark.parametrize("objective_s", [0.05, 0.25, 1.0])
def test_quantum_is_the_largest_batch_within_its_share_of_the_objective(objective_s: float) -> None:
    cost = CostModel(0.002, 1e-5)
    tokens = quantum(cost, objective_s, max_length=1, max_batch_tokens=10**9)
    assert cost.seconds(tokens) <= 0.6 * objective_s < cost.seconds(tokens + 2)


def test_quantum_holds_the_longest_item_but_never_more_than_the_cap() -> None:
    slow = CostModel(0.5, 1e-2)
    assert quantum(slow, 0.25, max_length=512, max_batch_tokens=32_768) == 512
    assert quantum(slow, 0.25, max_length=8_192, max_batch_tokens=2_048) == 2_048
    assert quantum(CostModel(), 0.25, max_length=512, max_batch_tokens=32_768) == 32_768


class Device:
    """Counts the time that it says it took."""

    def __init__(self, cost: CostModel, max_tokens: int = 10**9) -> None:
        self.cost = cost
        self.max_tokens = max_tokens
        self.sizes: list[int] = []

    async def run(self, num_tokens: int) -> tuple[int, float]:
        if num_tokens > self.max_tokens:
            raise MemoryError
        self.sizes.append(num_tokens)
        return num_tokens, self.cost.seconds(num_tokens)


async def test_measuring_goes_over_all_sizes_again_and_again() -> None:
    device = Device(CostModel(0.001, 1e-5))
    found, _ = await measure(device.run, max_tokens=32_768)
    assert device.sizes == SIZES * 5
    assert found.c_s == pytest.approx(1e-5, rel=0.01)


async def test_a_machine_that_is_busy_for_a_while_spoils_no_measurement() -> None:
    """The first two of the five rounds take three times as long."""
    device = Device(CostModel(0.001, 1e-5))

    async def run(num_tokens: int) -> tuple[int, float]:
        tokens, seconds = await device.run(num_tokens)
        return tokens, seconds * (3 if len(device.sizes) <= 2 * len(SIZES) else 1)

    assert (await measure(run, max_tokens=32_768))[0] == fit_of(4096)


async def test_measuring_a_slow_model_stops_before_its_second_is_over() -> None:
    device = Device(CostModel(0.0, 1e-3))
    found, _ = await measure(device.run, max_tokens=32_768)
    assert sum(map(device.cost.seconds, device.sizes)) < 1
    assert found.c_s == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize("a_s", [0.1, 0.2, 1.0])
async def test_what_every_batch_costs_is_not_taken_for_the_cost_of_its_tokens(a_s: float) -> None:
    """Batches that take long however small they are leave time for few, and those few have to tell a from c."""
    device = Device(CostModel(a_s, 5e-4))
    found, _ = await measure(device.run, max_tokens=32_768)
    assert found.a_s == pytest.approx(a_s, rel=0.01)
    assert found.c_s == pytest.approx(5e-4, rel=0.01)
    assert max(device.sizes) >= 256
    assert sum(map(device.cost.seconds, device.sizes)) < 12 * a_s


async def test_measuring_stays_below_the_largest_batch_allowed() -> None:
    device = Device(CostModel(0.001, 1e-5))
    await measure(device.run, max_tokens=100)
    assert max(device.sizes) <= 100


async def test_measuring_finds_out_what_does_not_fit_into_memory() -> None:
    assert await measure(Device(CostModel(0.001, 1e-5)).run, max_tokens=32_768) == (fit_of(4096), 32_768)
    assert await measure(Device(CostModel(0.001, 1e-5), 300).run, max_tokens=32_768) == (fit_of(256), 256)
    with pytest.raises(MemoryError):
        await measure(Device(CostModel(), max_tokens=10).run, max_tokens=32_768)


def fit_of(largest: int) -> CostModel:
    return fit([(size, CostModel(0.001, 1e-5).seconds(size)) for size in SIZES if size <= largest])
