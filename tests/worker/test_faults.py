"""Deadlines, crashes, poison and want of memory: each hits who it concerns, and nobody waits for ever."""

import asyncio
import os
import signal
import time
from typing import Any

import numpy as np
import pytest

from shoal.types import Demand, encode
from shoal.worker import sidecar as sidecar_module
from worker.station import LANE, SPEC, expected, vectors


async def test_a_deadline_that_has_passed_is_seen_at_the_pull(station: Any) -> None:
    one = await station()
    reply = await one.ask(["late"], deadline=time.time() - 1)
    assert reply.error.code == "deadline_exceeded"
    assert one.worker.sidecar.num_items == 0


async def test_a_deadline_that_passes_behind_a_running_batch_is_seen_at_batching(station: Any) -> None:
    one = await station(fake={"a_s": 0.4})
    running = one.ask_soon(["first"])
    await one.launched.wait()
    late, patient = one.ask_soon(["late"], deadline=time.time() + 0.1), one.ask_soon(["patient"])
    assert (await late).error.code == "deadline_exceeded"
    assert (await running).error is None
    assert (await patient).error is None
    assert one.worker.sidecar.num_items == 2


async def test_a_deadline_that_passes_before_a_rerun_is_seen_at_launch(station: Any) -> None:
    one = await station(fake={"a_s": 0.02})
    os.kill(one.worker.host_pid, signal.SIGSTOP)
    poison, late = one.ask_soon(["fault:raise"]), one.ask_soon(["late"], deadline=time.time() + 0.2)
    patient = [one.ask_soon([f"patient {i}"]) for i in range(2)]
    await one.launched.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(late), 0.3)
    os.kill(one.worker.host_pid, signal.SIGCONT)
    assert (await late).error.code == "deadline_exceeded"
    assert (await poison).error.code == "internal_error"
    assert [(await reply).error for reply in patient] == [None, None]


async def test_sigkill_of_the_host_under_load_loses_no_request(station: Any) -> None:
    one = await station(fake={"a_s": 0.003}, max_batch_items=16)
    texts = [f"text number {i}" for i in range(200)]
    asked = [one.ask_soon([text]) for text in texts]
    await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    killed = one.worker.host_pid
    os.kill(killed, signal.SIGKILL)
    replies = await asyncio.gather(*asked)
    np.testing.assert_array_equal(np.concatenate([vectors(reply) for reply in replies]), expected(*texts))
    assert one.worker.host_pid != killed
    assert await one.queue.depth(LANE) == 0
    assert one.worker.is_ready
    states = [status.models[0].state for status in one.statuses if status.models]
    assert "loading" in states[states.index("ready") :]
    await one.heard(lambda: one.state() == "ready")


async def test_two_sigkills_in_a_row_lose_no_request_either(station: Any) -> None:
    """The second one hits a lone suspect."""
    one = await station(fake={"a_s": 0.003}, max_batch_items=16)
    texts = [f"text number {i}" for i in range(50)]
    asked = [one.ask_soon([text]) for text in texts]
    killed = None
    for _ in range(2):
        one.launched.clear()
        await one.launched.wait()
        while one.worker.host_pid == killed:  # a batch for the host that is dead already
            one.launched.clear()
            await one.launched.wait()
        killed = one.worker.host_pid
        os.kill(killed, signal.SIGKILL)
    replies = await asyncio.gather(*asked)
    np.testing.assert_array_equal(np.concatenate([vectors(reply) for reply in replies]), expected(*texts))


async def test_an_item_that_kills_the_host_is_refused_and_its_neighbours_are_answered(station: Any) -> None:
    one = await station(fake={"a_s": 0.001})
    texts = [f"neighbour {i}" for i in range(10)]
    poison = one.ask_soon(["fault:crash"])
    replies = await asyncio.gather(*(one.ask([text]) for text in texts))
    assert "again and again" in (await poison).error.message
    np.testing.assert_array_equal(np.concatenate([vectors(reply) for reply in replies]), expected(*texts))


@pytest.mark.parametrize("fault", ["raise", "nan", "out_of_memory"])
async def test_a_poisoned_item_fails_alone(station: Any, fault: str) -> None:
    one = await station(fake={"a_s": 0.001})
    texts = [f"neighbour {i}" for i in range(20)]
    asked = [one.ask_soon([text, text + " again"]) for text in texts]
    asked.insert(7, one.ask_soon(["innocent", f"fault:{fault}"], first_item=30))
    replies = await asyncio.gather(*asked)
    poisoned = replies.pop(7)
    assert poisoned.error.code == ("not_ready" if fault == "out_of_memory" else "internal_error")
    if fault == "nan":
        assert "vector for input[31] is not finite" in poisoned.error.message
    for text, reply in zip(texts, replies, strict=True):
        np.testing.assert_array_equal(vectors(reply), expected(text, text + " again"))


async def test_want_of_memory_halves_the_quantum_and_all_are_answered(station: Any) -> None:
    one = await station(fake={"max_tokens": 3000})
    texts = [f"{i:3} " * 100 for i in range(80)]
    reply = await one.ask(texts)
    np.testing.assert_array_equal(vectors(reply), expected(*texts))
    quantum = one.worker.sidecar.models[SPEC.id].quantum_tokens
    assert 512 <= quantum <= 4000
    await one.heard(lambda: one.statuses[-1].models[0].quantum_tokens == quantum)


async def test_a_host_that_hangs_is_killed_and_the_culprit_refused(
    station: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_module, "HANG_S", 0.2)
    one = await station(lease_s=0.3)
    hung, neighbour = await asyncio.gather(one.ask(["fault:hang"]), one.ask(["neighbour"]))
    assert "again and again" in hung.error.message
    np.testing.assert_array_equal(vectors(neighbour), expected("neighbour"))


async def test_the_lease_of_a_slow_batch_is_kept(station: Any) -> None:
    one = await station(lease_s=0.2, fake={"a_s": 0.6})
    reply = await one.ask(["slow"])  # a redelivery would run it, and reply, twice
    np.testing.assert_array_equal(vectors(reply), expected("slow"))
    assert one.worker.sidecar.num_items == 1


async def test_a_chunk_that_comes_again_while_it_is_held_runs_once(station: Any) -> None:
    """The lease runs out while the host is stopped and nobody renews it: the new lease replaces the old one."""
    one = await station(lease_s=0.2)
    one.worker.sidecar._keeper.cancel()
    os.kill(one.worker.host_pid, signal.SIGSTOP)
    asked = one.ask_soon(["hello"])
    await one.launched.wait()
    (work,) = one.worker.sidecar.replies.of()
    lent = work.lease
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(asked), 0.5)
    assert work.lease is not lent
    os.kill(one.worker.host_pid, signal.SIGCONT)
    np.testing.assert_array_equal(vectors(await asked), expected("hello"))
    assert one.worker.sidecar.num_items == 1
    assert await one.queue.depth(LANE) == 0


async def test_a_chunk_that_was_delivered_too_often_is_given_up(station: Any) -> None:
    one = await station(max_deliveries=1, preload=())
    leases: asyncio.Queue[Any] = asyncio.Queue()
    pull = await one.queue.pull(LANE, leases.put_nowait)
    pull.grant(1)
    asked = one.ask_soon(["hello"])
    lease = await leases.get()
    await pull.close()
    lease.nak()
    one.queue.send("demand.default", encode(Demand("chosen", SPEC.id, one.worker.id)))
    assert "given up" in (await asked).error.message
    assert await one.queue.depth(LANE) == 0


async def test_a_message_that_is_no_chunk_is_dropped(station: Any, caplog: pytest.LogCaptureFixture) -> None:
    one = await station()
    await one.queue.publish(LANE, "1", b"\xc1 not a chunk")
    np.testing.assert_array_equal(vectors(await one.ask(["hello"])), expected("hello"))
    assert "is no chunk" in caplog.text
    assert await one.queue.depth(LANE) == 0
