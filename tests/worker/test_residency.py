"""Models come and go within a memory budget: a real runtime host, whose fake models take 100 bytes each."""

import asyncio
import os
import signal
from typing import Any

import numpy as np
import pytest

from shoal.catalog import fake_spec
from shoal.errors import UnknownModel
from shoal.types import Demand, encode
from shoal.worker import budget
from worker.station import Station, expected, vectors

SPECS = {name: fake_spec(f"fake:{name}") for name in "abcd"}


async def open_models(station: Any, preload: str, budget_bytes: int, fake: Any = None, **settings: Any) -> Station:
    options = {"bytes": 100, **(fake or {})}
    return await station(
        *SPECS.values(),
        preload=tuple(f"fake:{name}" for name in preload),
        memory_budget=str(budget_bytes),
        fake=options,
        **settings,
    )


def want(one: Station, name: str) -> None:
    one.queue.send("demand.default", encode(Demand("chosen", f"fake:{name}", one.worker.id)))


def ready(one: Station) -> set[str]:
    return {model.id.removeprefix("fake:") for model in one.statuses[-1].models if model.state == "ready"}


async def ask(one: Station, name: str, text: str = "hello") -> None:
    reply = await one.ask([text], model=f"fake:{name}")
    np.testing.assert_array_equal(vectors(reply), expected(text, spec=SPECS[name]))


@pytest.fixture
def no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEAST_IDLE_S", "IDLE_LOADS", "LEAST_BUSY_S", "BUSY_LOADS"):
        monkeypatch.setattr(budget, name, 0.0)


async def test_a_model_that_is_wanted_takes_the_place_of_the_least_recently_used(station: Any, no_turns: None) -> None:
    one = await open_models(station, "abc", 350)
    for name in "bca":
        await ask(one, name)
    want(one, "d")
    await one.heard(lambda: ready(one) == {"a", "c", "d"})
    await ask(one, "d")
    want(one, "b")
    await one.heard(lambda: ready(one) == {"a", "b", "d"})
    await ask(one, "b")
    assert one.worker.measures.evictions.value == 2
    assert one.worker.residency.room.used_bytes == 300


async def test_pinned_models_stay(station: Any, no_turns: None) -> None:
    one = await open_models(station, "abc", 350, pin="fake:b, fake:a")
    await ask(one, "c")
    want(one, "d")
    await one.heard(lambda: ready(one) == {"a", "b", "d"})


async def test_a_name_to_pin_that_stands_for_nothing_is_refused_at_once() -> None:
    one = Station(pin="nonesuch")
    with pytest.raises(UnknownModel, match="'nonesuch'"):
        await one.start()
    await one.close()


async def test_what_does_not_fit_at_the_start_is_left_to_those_who_ask_for_it(station: Any, no_turns: None) -> None:
    one = await open_models(station, "abcd", 250, pin="fake:d")
    assert one.worker.is_ready
    assert ready(one) == {"a", "d"}
    want(one, "c")
    await one.heard(lambda: ready(one) == {"c", "d"})


async def test_work_of_a_model_that_has_to_go_is_finished_first(station: Any, no_turns: None) -> None:
    one = await open_models(station, "a", 150, {"a_s": 0.1}, max_batch_items=2)
    asked = [one.ask_soon([f"text {i}"], model="fake:a") for i in range(8)]
    await one.launched.wait()
    want(one, "b")
    await one.heard(lambda: "b" in ready(one))
    replies = [reply.result() for reply in asked if reply.done()]
    assert len(replies) >= 2
    want(one, "a")  # as a gateway does, as long as somebody waits for it
    for i, reply in enumerate(await asyncio.gather(*asked)):
        np.testing.assert_array_equal(vectors(reply), expected(f"text {i}", spec=SPECS["a"]))


async def test_models_in_demand_that_do_not_fit_together_take_turns(
    station: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has work all the time: none waits for ever, and none is thrown out at once."""
    monkeypatch.setattr(budget, "LEAST_BUSY_S", 0.2)
    one = await open_models(station, "a", 150)
    served: dict[str, int] = dict.fromkeys("abc", 0)

    async def ask_on(name: str) -> None:
        while min(served.values()) < 20:
            asked = asyncio.create_task(ask(one, name))
            while not asked.done():  # a gateway says so as long as somebody waits: it may be on its way out
                if name not in ready(one):
                    want(one, name)
                await asyncio.wait([asked], timeout=0.05)
            await asked
            served[name] += 1

    await asyncio.gather(*map(ask_on, "abc"))
    assert one.worker.measures.evictions.value >= 2
    assert sum(served.values()) > 5 * one.worker.measures.evictions.value


async def test_bids_say_what_would_stay_free_and_who_has_no_room_does_not_bid(station: Any) -> None:
    one = await open_models(station, "ab", 350, pin="fake:a")
    one.queue.send("demand.default", encode(Demand("wanted", "fake:c")))
    await one.heard(lambda: [demand for demand in one.demands if demand.kind == "bid"])
    assert one.demands[-1].free_bytes == 50
    full = await open_models(station, "ab", 250, pin="fake:a,fake:b")
    full.statuses.clear()
    full.queue.send("demand.default", encode(Demand("wanted", "fake:c")))
    await full.heard(lambda: full.statuses)
    assert not [demand for demand in full.demands if demand.kind == "bid"]


async def test_a_model_larger_than_the_budget_is_refused_and_nobody_has_to_go(station: Any, no_turns: None) -> None:
    one = await open_models(station, "", 90)
    want(one, "a")
    await one.heard(lambda: one.state("fake:a") == "failed")
    error = one.statuses[-1].models[0].error
    assert error.code == "model_refused"
    assert "memory budget" in error.message
    assert one.worker.residency.room.used_bytes == 0


async def test_an_estimate_that_was_too_low_is_put_right_at_the_cost_of_others(station: Any) -> None:
    one = await open_models(station, "ab", 250, {"estimated_bytes": 10})
    want(one, "c")
    await one.heard(lambda: "c" in ready(one))
    await one.heard(lambda: len(ready(one)) == 2)
    assert one.worker.residency.room.used_bytes == 200


@pytest.mark.parametrize("fault", ["crash", "raise", "out_of_memory"])
async def test_a_model_that_cannot_be_loaded_harms_no_other(station: Any, fault: str) -> None:
    one = await open_models(station, "ab", 350, {"load_fault": fault, "fault_model": "fake:c", "a_s": 0.002})
    asked = [one.ask_soon([f"text {i}"], model=f"fake:{'ab'[i % 2]}") for i in range(40)]
    want(one, "c")
    await one.heard(lambda: one.state("fake:c") == "failed")
    for i, reply in enumerate(await asyncio.gather(*asked)):
        np.testing.assert_array_equal(vectors(reply), expected(f"text {i}"))
    (error,) = [model.error for model in one.statuses[-1].models if model.id == "fake:c"]
    assert error.code == ("internal_error" if fault == "raise" else "not_ready")
    assert (error.retry_after_s is None) == (fault == "raise")
    assert one.worker.residency.room.used_bytes == 200
    await ask(one, "a")


async def test_a_host_that_dies_while_a_model_loads_does_not_fail_it(station: Any) -> None:
    one = await open_models(station, "a", 350, {"load_s": 0.3})
    want(one, "b")
    await one.heard(lambda: one.state("fake:b") == "loading")
    os.kill(one.worker.host_pid, signal.SIGKILL)
    await one.heard(lambda: ready(one) == {"a", "b"})
    await ask(one, "b")
    await ask(one, "a")
