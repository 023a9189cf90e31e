"""Loading on demand, failing to load, announcing, draining."""

import asyncio
import os
import signal
from typing import Any

import numpy as np
import pytest

from shoal.catalog import fake_spec
from shoal.errors import InternalError, ModelRefused, NotReady, UnknownModel
from shoal.types import Demand, WorkerStatus, decode_status, encode
from worker.station import LANE, SPEC, Station, expected, vectors


def demand(one: Station, kind: Any, model: str = SPEC.id, worker_id: str = "") -> None:
    one.queue.send("demand.default", encode(Demand(kind, model, worker_id)))


def bids(one: Station) -> list[Demand]:
    return [demand for demand in one.demands if demand.kind == "bid"]


async def test_a_model_is_loaded_when_a_gateway_chooses_this_worker(station: Any) -> None:
    one = await station(preload=())
    await one.heard(lambda: one.statuses)
    assert one.statuses[-1].cards == (SPEC.card,)
    assert one.statuses[-1].models == ()
    asked = one.ask_soon(["hello"])
    demand(one, "wanted")
    (bid,) = await one.heard(lambda: bids(one))
    assert (bid.worker_id, bid.model) == (one.worker.id, SPEC.id)
    assert bid.free_bytes > 0
    demand(one, "chosen", worker_id="another")
    demand(one, "chosen", worker_id=one.worker.id)
    await one.heard(lambda: one.state() == "ready")
    np.testing.assert_array_equal(vectors(await asked), expected("hello"))
    assert [status.models[0].state for status in one.statuses if status.models][:2] == ["loading", "ready"]


async def test_a_ready_model_is_announced_with_its_costs(station: Any) -> None:
    one = await station(fake={"a_s": 0.002, "c_s": 1e-5})
    await one.heard(lambda: one.state() == "ready")
    model = one.statuses[-1].models[0]
    assert 0.001 < model.a_s < 0.02
    assert 0.5e-5 < model.c_s < 3e-5
    assert 512 <= model.quantum_tokens < 32_768
    assert model.load_s > 0
    assert (model.runtime, model.device) == ("fake", "fake")


async def test_wanted_once_more_a_loaded_model_is_announced_again(station: Any) -> None:
    one = await station()
    one.statuses.clear()
    demand(one, "wanted")
    await one.heard(lambda: one.state() == "ready")
    assert not bids(one)


async def test_a_load_that_fails_is_announced_with_its_error_and_not_tried_again_at_once(station: Any) -> None:
    one = await station(preload=(), fake={"load_fault": "raise"})
    demand(one, "chosen", worker_id=one.worker.id)
    await one.heard(lambda: one.state() == "failed")
    assert one.statuses[-1].models[0].error.code == "internal_error"
    one.statuses.clear()
    demand(one, "wanted")
    demand(one, "chosen", worker_id=one.worker.id)
    await one.heard(lambda: one.state() == "failed")
    assert not bids(one)
    assert not any(model.state == "loading" for status in one.statuses for model in status.models)


@pytest.mark.parametrize(
    ("fake", "error", "message"),
    [
        ({"load_fault": "raise"}, InternalError, "a fault was asked for"),
        ({"load_fault": "out_of_memory"}, NotReady, "does not fit into memory now"),
        ({"load_fault": "crash"}, NotReady, "host died"),
        ({"bogus": 1}, ModelRefused, "no option 'bogus'"),
    ],
)
async def test_a_preload_that_fails_is_raised_to_who_waits_for_it(fake: Any, error: Any, message: str) -> None:
    one = Station(fake=fake)
    with pytest.raises(error, match=message):
        await one.start()
    assert not one.worker.is_ready
    await one.close()


async def test_a_preload_that_is_not_there_is_refused_at_once() -> None:
    one = Station()
    with pytest.raises(UnknownModel, match="'nonesuch'") as caught:
        await one.start(preload=("nonesuch",))
    assert SPEC.id in str(caught.value.hint)
    await one.close()


async def test_runtime_options_that_are_no_json_object_are_refused() -> None:
    one = Station()
    settings = type(one.settings)(runtime="fake", runtime_options="[1")
    one.settings = settings
    with pytest.raises(ValueError, match="runtime_options is"):
        await one.start()
    await one.queue.close()


class Lazy:
    """A model whose files are looked at when it is wanted."""

    card = fake_spec("fake:lazy").card
    num_resolved = 0

    async def __call__(self) -> Any:
        self.num_resolved += 1
        return fake_spec("fake:lazy")


async def test_a_lazy_model_is_announced_by_its_card_and_resolved_when_it_is_loaded(station: Any) -> None:
    lazy = Lazy()
    one = await station(lazy, lambda: SPEC, preload=())
    await one.heard(lambda: one.statuses)
    assert [card.id for card in one.statuses[-1].cards] == ["fake:lazy", SPEC.id]
    assert lazy.num_resolved == 0
    demand(one, "chosen", "fake:lazy", one.worker.id)
    await one.heard(lambda: one.state("fake:lazy") == "ready")
    assert vectors(await one.ask(["hello"], model="fake:lazy")).shape == (1, 8)


async def test_a_gateway_that_says_hello_is_answered_at_once(station: Any) -> None:
    one = await station()
    await one.heard(lambda: one.state() == "ready")
    one.statuses.clear()
    one.queue.send("hello.default", b"")
    await one.heard(lambda: one.statuses)
    assert one.statuses[0].worker_id == one.worker.id


async def test_what_many_models_announce_grows_with_their_number_not_with_its_square(
    station: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of a thousand models that told them all each time one was ready was never done with it."""
    monkeypatch.setattr("shoal.worker.worker.START_S", 0.0)
    specs = [fake_spec(f"fake:m{number}") for number in range(120)]
    told: list[WorkerStatus] = []
    one = Station()
    await one.queue.listen("status.default", lambda body: told.append(decode_status(body)))
    await one.start(*specs, preload=[spec.id for spec in specs])
    assert one.ready == {spec.id for spec in specs}
    assert sum(len(status.models) for status in told) < 4 * len(specs)
    assert sum(len(status.cards) for status in told) == len(specs), "once, at the start"
    told.clear()
    one.queue.send("hello.default", b"another worker")
    one.queue.send("hello.default", one.worker.id.encode())
    await one.heard(lambda: told and told[-1].part + 1 == told[-1].num_parts > 1)
    assert [card.id for status in told for card in status.cards] == [spec.id for spec in specs]
    await one.close()


async def test_draining_finishes_what_runs_and_takes_nothing_new(station: Any) -> None:
    one = await station(fake={"a_s": 0.1})
    asked = [one.ask_soon([f"text {i}"]) for i in range(5)]
    await one.launched.wait()
    draining = asyncio.create_task(one.worker.drain())
    await one.heard(lambda: one.statuses[-1].leaving)
    late = one.ask_soon(["late"])
    await draining
    assert [(await reply).error for reply in asked] == [None] * 5
    assert not late.done()
    assert await one.queue.depth(LANE) == 1
    assert not one.worker.is_ready
    late.cancel()


async def test_draining_hands_back_what_does_not_finish_in_time(station: Any) -> None:
    one = await station(drain_s=0.1)
    os.kill(one.worker.host_pid, signal.SIGSTOP)
    asked = [one.ask_soon([f"text {i}"]) for i in range(5)]
    await one.launched.wait()
    await one.worker.drain()
    assert await one.queue.depth(LANE) == 5
    another = Station()
    another.queue, another._replies = one.queue, one._replies
    await another.start()
    for i, reply in enumerate(await asyncio.gather(*asked)):
        np.testing.assert_array_equal(vectors(reply), expected(f"text {i}"))
    await another.worker.drain()
