"""What only the JetStream queue has to stand: a broker that goes, comes back empty, fills up or keeps us out."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time

import pytest
import uvloop
from tests.queue.deployments import LANE, Arrivals, JetStreamDeployment, ack

from shoal.errors import NotReady, Overloaded
from shoal.queue import open_queue
from shoal.queue.broker import Broker
from shoal.queue.jetstream import JetStreamOptions, JetStreamQueue
from shoal.queue.memory import MemoryQueue
from shoal.queue.pull import JetStreamLease
from shoal.settings import QueueSettings
from shoal.types import Lane


async def kill(broker: Broker) -> None:
    """End the broker as a power cut would."""
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGKILL)
    await broker.stop()


class Back:
    """Waits for `on_reconnect` of a queue."""

    def __init__(self, queue: JetStreamQueue) -> None:
        self.count = 0
        self._event = asyncio.Event()
        queue.on_reconnect(self._again)

    def _again(self) -> None:
        self.count += 1
        self._event.set()

    async def wait(self) -> None:
        async with asyncio.timeout(20):
            await self._event.wait()
        self._event.clear()


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
async def test_after_a_broker_restart_publishes_pulls_and_listeners_work_again(
    jetstream: JetStreamDeployment, is_killed: bool
) -> None:
    publisher, puller = await jetstream.connect(), await jetstream.connect()
    backs = Back(publisher), Back(puller)
    arrivals, heard = Arrivals(), Arrivals()
    pull = await puller.pull(LANE, arrivals)
    pull.grant(100)
    await publisher.listen("reply.me", heard)
    await publisher.publish(LANE, "before", b"before")
    (old,) = await arrivals.reach(1)
    for number in range(2):
        await (kill(jetstream.broker) if is_killed else jetstream.broker.stop())
        await jetstream.broker.start()
        await asyncio.gather(*(back.wait() for back in backs))
        assert publisher.is_connected
        assert puller.is_connected
        await publisher.publish(LANE, "before", b"again%d" % number)  # a new broker remembers no ids
        leases = await arrivals.reach(2 + number)
        assert (leases[-1].body, leases[-1].delivery_count) == (b"again%d" % number, 1)
        puller.send("reply.me", b"reply%d" % number)
        await heard.reach(1 + number)
    old.ack()  # its number is that of a new message now, which must not go
    assert len(arrivals.all) == 3
    assert pull.credit == 97
    assert [back.count for back in backs] == [2, 2]


async def test_an_ack_for_the_old_broker_ends_nothing_in_the_new_one(jetstream: JetStreamDeployment) -> None:
    queue = await jetstream.connect(lease_s=0.5)
    back = Back(queue)
    arrivals = Arrivals()
    (await queue.pull(LANE, arrivals)).grant(100)
    await queue.publish(LANE, "id", b"old")
    (old,) = await arrivals.reach(1)
    await kill(jetstream.broker)
    await jetstream.broker.start()
    await back.wait()
    await queue.publish(LANE, "id", b"new")
    await arrivals.reach(2)
    old.ack()
    leases = await arrivals.reach(3)
    assert [(lease.body, lease.delivery_count) for lease in leases[1:]] == [(b"new", 1), (b"new", 2)]


async def test_nothing_is_lost_while_the_broker_dies_again_and_again(jetstream: JetStreamDeployment) -> None:
    gateway, worker = await jetstream.connect(), await jetstream.connect()
    is_open = dict.fromkeys(range(600), 0)
    replies = Arrivals()
    replies.react = lambda reply: is_open.pop(int(reply), None)
    await gateway.listen("reply.gateway", replies)
    publishes: set[asyncio.Task[None]] = set()

    def publish(number: int) -> None:
        is_open[number] += 1
        task = asyncio.create_task(gateway.publish(LANE, f"{number}.{is_open[number]}", b"%d" % number))
        publishes.add(task)

    def publish_again() -> None:
        for number in is_open:
            publish(number)

    def work(lease: JetStreamLease) -> None:
        worker.send("reply.gateway", lease.body)
        lease.ack()
        pull.grant(1)

    gateway.on_reconnect(publish_again)
    pull = await worker.pull(LANE, work)
    pull.grant(10)
    publish_again()
    for count in (100, 200):
        await replies.reach(count)
        await kill(jetstream.broker)
        await jetstream.broker.start()
    await replies.until(lambda _: not is_open)
    assert {int(reply) for reply in replies.all} == set(range(600))
    await asyncio.gather(*publishes)


async def test_a_publish_waits_for_a_broker_that_comes_back(jetstream: JetStreamDeployment) -> None:
    options = JetStreamOptions(publish_timeout_s=30.0)
    publisher, puller = await jetstream.connect(options=options), await jetstream.connect()
    arrivals = Arrivals()
    (await puller.pull(LANE, arrivals)).grant(100)
    await kill(jetstream.broker)
    waiting = [asyncio.create_task(publisher.publish(LANE, f"id{number}", b"%d" % number)) for number in range(20)]
    await jetstream.broker.start()
    await asyncio.gather(*waiting)
    await arrivals.reach(20)
    assert sorted(arrivals.bodies, key=int) == [b"%d" % number for number in range(20)]


async def test_a_publish_that_the_broker_took_to_its_grave_is_sent_again(jetstream: JetStreamDeployment) -> None:
    queue = await jetstream.connect(options=JetStreamOptions(publish_timeout_s=60.0))
    await queue.publish(LANE, "first", b"first")
    assert jetstream.broker.pid is not None
    os.kill(jetstream.broker.pid, signal.SIGSTOP)
    # Its other threads stop a moment after the signal.
    await asyncio.to_thread(os.waitid, os.P_PID, jetstream.broker.pid, os.WSTOPPED | os.WNOWAIT)
    hanging = asyncio.create_task(queue.publish(LANE, "id", b"body"))
    await asyncio.wait([hanging], timeout=0.05)
    assert not hanging.done()
    await kill(jetstream.broker)
    await jetstream.broker.start()
    async with asyncio.timeout(20):
        await hanging
    assert await queue.depth(LANE) == 1


async def test_a_publish_while_the_broker_is_down_fails_in_bounded_time(jetstream: JetStreamDeployment) -> None:
    options = JetStreamOptions(publish_timeout_s=0.3, publish_window=4)
    queue = await jetstream.connect(options=options)
    await queue.publish(LANE, "first", b"first")
    await kill(jetstream.broker)
    started_at = time.monotonic()
    results = await asyncio.gather(
        *(queue.publish(LANE, f"id{number}", b"body") for number in range(50)), return_exceptions=True
    )
    assert {type(result) for result in results} == {NotReady}
    assert time.monotonic() - started_at < 10  # fifty in turns of four: not one time-out after the other
    assert not queue.is_connected
    queue.send("reply.me", b"lost")
    with pytest.raises(NotReady):
        await queue.depth(LANE)


async def test_a_pull_and_a_listener_opened_while_the_broker_is_down_start_when_it_is_back(
    jetstream: JetStreamDeployment,
) -> None:
    publisher, puller = await jetstream.connect(), await jetstream.connect()
    back = Back(puller)
    await kill(jetstream.broker)
    with pytest.raises(NotReady):
        await puller.depth(LANE)  # it has noticed
    arrivals, heard = Arrivals(), Arrivals()
    (await puller.pull(LANE, arrivals)).grant(1)
    await puller.listen("reply.me", heard)
    await jetstream.broker.start()
    await back.wait()
    await publisher.publish(LANE, "id", b"body")
    await arrivals.reach(1)
    publisher.send("reply.me", b"reply")
    await heard.reach(1)


async def test_credit_outlives_the_expiry_of_a_pull_request(
    jetstream: JetStreamDeployment, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = await jetstream.connect()
    puller = await jetstream.connect(options=JetStreamOptions(pull_expiry_s=0.6))
    arrivals, asked = Arrivals(), Arrivals()
    pull = await puller.pull(LANE, arrivals)
    await publisher._connection.subscribe("$JS.API.CONSUMER.MSG.NEXT.>", asked, 5.0)  # what goes to the broker
    pull.grant(3)
    await asked.reach(4)  # asked four times: three requests ran out
    assert pull.credit == 3
    for number in range(5):
        await publisher.publish(LANE, f"id{number}", b"%d" % number)
    await arrivals.reach(3)
    assert await publisher.depth(LANE) == 2
    assert arrivals.bodies == [b"0", b"1", b"2"]
    assert pull.credit == 0
    assert "starts over" not in caplog.text


async def test_a_pull_starts_over_when_its_consumer_or_stream_is_deleted(jetstream: JetStreamDeployment) -> None:
    publisher, puller = await jetstream.connect(), await jetstream.connect()
    arrivals = Arrivals()
    (await puller.pull(LANE, arrivals)).grant(10)
    await publisher.publish(LANE, "id0", b"0")
    (await arrivals.reach(1))[0].ack()
    names = await publisher._api.call("CONSUMER.NAMES.SHOAL_default")
    await publisher._api.call(f"CONSUMER.DELETE.SHOAL_default.{names['consumers'][0]}")
    await publisher.publish(LANE, "id1", b"1")
    (await arrivals.reach(2))[1].ack()
    await publisher._api.call("STREAM.DELETE.SHOAL_default")
    await publisher.publish(LANE, "id2", b"2")
    await arrivals.reach(3)
    assert arrivals.bodies == [b"0", b"1", b"2"]


async def test_a_pull_whose_requests_were_lost_asks_again(jetstream: JetStreamDeployment) -> None:
    publisher = await jetstream.connect()
    puller = await jetstream.connect(options=JetStreamOptions(pull_expiry_s=0.6))
    arrivals = Arrivals()
    pull = await puller.pull(LANE, arrivals)
    right = pull._next_subject
    pull._next_subject = "shoal.plain.nowhere.listened"
    listener = await publisher.listen("nowhere.listened", lambda body: None)  # swallows the request, never answers
    pull.grant(2)
    await publisher.publish(LANE, "id", b"body")
    await arrivals.reach(1)
    assert pull._next_subject == right
    assert pull.credit == 1
    await listener.close()


async def test_a_pull_whose_stream_was_made_anew_unseen_starts_over(
    jetstream: JetStreamDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the broker that held it went, in a cluster where the connection is to another one."""
    monkeypatch.setattr("shoal.queue.jetstream._LOOK_S", 0.2)
    publisher, puller = await jetstream.connect(), await jetstream.connect(options=JetStreamOptions(pull_expiry_s=600))
    arrivals = Arrivals()
    pull = await puller.pull(LANE, arrivals)
    right = pull._next_subject
    pull._next_subject = "shoal.plain.nowhere.listened-deadbeef"
    listener = await publisher.listen("nowhere.listened-deadbeef", lambda body: None)
    pull.grant(2)
    await publisher.publish(LANE, "id", b"body")
    await arrivals.reach(1)
    assert pull._next_subject == right
    await listener.close()


async def test_a_full_queue_refuses_and_takes_again_when_there_is_room(jetstream: JetStreamDeployment) -> None:
    queue = await jetstream.connect(options=JetStreamOptions(max_stream_messages=3, publish_timeout_s=20))
    for number in range(3):
        await queue.publish(LANE, f"id{number}", b"body")
    with pytest.raises(Overloaded, match="maximum messages"):
        await queue.publish(LANE, "one more", b"body")
    arrivals = Arrivals()
    arrivals.react = ack
    (await queue.pull(LANE, arrivals)).grant(1)
    await arrivals.reach(1)
    async with asyncio.timeout(20):
        while True:  # until the broker has seen the ack
            try:
                await queue.publish(LANE, "one more", b"body")
                break
            except Overloaded:
                continue


async def test_many_lanes_on_one_worker(jetstream: JetStreamDeployment) -> None:
    publisher, puller = await jetstream.connect(), await jetstream.connect()
    lanes = [Lane("default", f"org/model-{number}") for number in range(200)]
    arrivals = Arrivals()
    pulls = await asyncio.gather(*(puller.pull(lane, arrivals) for lane in lanes))
    for pull in pulls:
        pull.grant(2)
    await asyncio.gather(*(publisher.publish(lane, lane.model, lane.model.encode()) for lane in lanes))
    await arrivals.reach(200)
    assert sorted(arrivals.bodies) == sorted(lane.model.encode() for lane in lanes)


async def test_streams_of_another_configuration_are_used_as_they_are(jetstream: JetStreamDeployment) -> None:
    first = await jetstream.connect()
    await first.publish(LANE, "id0", b"0")
    second = await jetstream.connect(options=JetStreamOptions(max_stream_messages=77))
    arrivals = Arrivals()
    (await second.pull(LANE, arrivals)).grant(1)
    await arrivals.reach(1)


async def test_a_token_is_asked_for_and_a_wrong_one_named(caplog: pytest.LogCaptureFixture) -> None:
    async with Broker(port=0, token='se"cret $1') as broker:
        right = QueueSettings(queue=broker.url, queue_token='se"cret $1')
        queue = await open_queue(right)
        assert isinstance(queue, JetStreamQueue)
        await queue.publish(LANE, "id", b"body")
        await queue.close()
        with pytest.raises(NotReady, match=r"(?s)Authorization Violation.*SHOAL_QUEUE_TOKEN"):
            await JetStreamQueue.connect(
                QueueSettings(queue=broker.url, queue_token="wrong"),
                JetStreamOptions(connect_timeout_s=4.0),  # a broker's word may be lost as it hangs up; it comes again
            )


async def test_a_password_in_the_url_is_not_shown() -> None:
    with pytest.raises(NotReady) as caught:
        await JetStreamQueue.connect(
            QueueSettings(queue="nats://me:hidden@127.0.0.1:1"), JetStreamOptions(connect_timeout_s=0.3)
        )
    assert "127.0.0.1:1" in str(caught.value)
    assert "hidden" not in str(caught.value)


async def test_a_connection_that_the_broker_ends_with_an_error_is_made_anew(
    jetstream: JetStreamDeployment, caplog: pytest.LogCaptureFixture
) -> None:
    publisher, puller = await jetstream.connect(), await jetstream.connect()
    back = Back(puller)
    arrivals, heard = Arrivals(), Arrivals()
    (await puller.pull(LANE, arrivals)).grant(2)
    await puller.listen("reply.me", heard)
    with caplog.at_level(logging.ERROR, "shoal.queue"):
        # What nats-py does when a line such as -ERR 'Maximum Subscriptions Exceeded' comes: it closes for good.
        await puller._connection._client._process_err("'maximum subscriptions exceeded'")
        await back.wait()
    assert "maximum subscriptions exceeded" in caplog.text
    await publisher.publish(LANE, "id", b"body")
    publisher.send("reply.me", b"reply")
    await arrivals.reach(1)
    await heard.reach(1)


async def test_no_queue_setting_means_memory() -> None:
    queue = await open_queue(QueueSettings())
    assert isinstance(queue, MemoryQueue)
    await queue.close()


async def test_a_take_ends_though_the_broker_does_not_answer(jetstream: JetStreamDeployment) -> None:
    queue = await jetstream.connect(options=JetStreamOptions(publish_timeout_s=1.0))
    arrivals, ended = Arrivals(), Arrivals()
    pull = await queue.pull(LANE, arrivals)
    await queue.publish(LANE, "id", b"body")
    right, pull._next_subject = pull._next_subject, "shoal.plain.nowhere.listened"
    listener = await queue.listen("nowhere.listened", lambda body: None)  # swallows the request, never answers
    pull.take(1, lambda: ended("no answer"))
    await ended.reach(1)
    pull._next_subject = right
    pull.take(1, lambda: ended("answered"))
    await ended.reach(2)
    assert arrivals.bodies == [b"body"]
    await kill(jetstream.broker)
    pull.take(1, lambda: ended("broker gone"))
    await ended.reach(3)
    await listener.close()


async def test_a_take_from_a_consumer_that_is_gone_ends(jetstream: JetStreamDeployment) -> None:
    queue = await jetstream.connect()
    arrivals, ended = Arrivals(), Arrivals()
    pull = await queue.pull(LANE, arrivals)
    await queue._api.call("STREAM.DELETE.SHOAL_default")
    pull.take(1, lambda: ended("no consumer"))
    await ended.reach(1)
    await queue.publish(LANE, "id", b"body")
    pull.grant(1)
    await arrivals.reach(1)


def test_closing_a_pull_while_the_broker_hangs_up_is_no_crash() -> None:
    """uvloop calls it a RuntimeError to write to a socket whose end nats-py was not told of yet."""

    async def run() -> None:
        async with Broker(port=0) as broker:
            queue = await JetStreamQueue.connect(QueueSettings(queue=broker.url))
            pull = await queue.pull(LANE, lambda lease: None)
            queue._connection._client._transport._io_writer.transport.abort()
            await pull.close()
            await queue.close()

    uvloop.run(run())


async def test_what_a_take_brings_to_a_pull_that_closes_goes_to_another_at_once(jetstream: JetStreamDeployment) -> None:
    leaving, staying = await jetstream.connect(lease_s=100), await jetstream.connect(lease_s=100)
    for number in range(50):
        await staying.publish(LANE, f"id{number}", b"%4000d" % number)
    mine, others = Arrivals(), Arrivals()
    pull = await leaving.pull(LANE, mine)
    pull.take(50, lambda: None)
    await pull.close()
    (await staying.pull(LANE, others)).grant(50)
    await others.reach(50 - len(mine.all))
