"""What every queue does: the same tests over both implementations.

Where a test says that something does not happen, it waits for something else that happens later on the same path.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time

import pytest
from tests.queue.deployments import LANE, Arrivals, Deployment, ack

from shoal.errors import NotReady, TooLarge
from shoal.queue.base import Pull
from shoal.queue.dead import MAX_LETTERS
from shoal.types import Lane

SHORT_LEASE_S = 0.5


async def test_a_lane_keeps_its_order(deployment: Deployment) -> None:
    publisher, puller = await deployment.connect(), await deployment.connect()
    arrivals = Arrivals()
    (await puller.pull(LANE, arrivals)).grant(100)
    for number in range(50):
        await publisher.publish(LANE, f"id{number}", b"%d" % number)
    await arrivals.reach(50)
    assert arrivals.bodies == [b"%d" % number for number in range(50)]
    assert {lease.delivery_count for lease in arrivals.all} == {1}


async def test_a_lease_tells_when_it_was_published(deployment: Deployment) -> None:
    queue = await deployment.connect()
    arrivals = Arrivals()
    (await queue.pull(LANE, arrivals)).grant(1)
    before = time.time()
    await queue.publish(LANE, "id", b"body")
    await arrivals.reach(1)
    assert before - 0.1 <= arrivals.all[0].published_at <= time.time() + 0.1


async def test_what_was_published_before_anyone_pulled_is_delivered_later(deployment: Deployment) -> None:
    publisher = await deployment.connect()
    await publisher.publish(LANE, "id1", b"early")
    puller = await deployment.connect()
    arrivals = Arrivals()
    pull = await puller.pull(LANE, arrivals)
    assert pull.credit == 0
    pull.grant(1)
    await arrivals.reach(1)
    assert arrivals.bodies == [b"early"]
    assert pull.credit == 0


async def test_credit_is_never_exceeded(deployment: Deployment) -> None:
    publisher, puller, other = [await deployment.connect() for _ in range(3)]
    first, second = Arrivals(), Arrivals()
    pull = await puller.pull(LANE, first)
    pull.grant(3)
    for number in range(10):
        await publisher.publish(LANE, f"id{number}", b"%d" % number)
    await first.reach(3)
    assert pull.credit == 0
    assert await publisher.depth(LANE) == 7
    pull.grant(1)
    await first.reach(4)
    (await other.pull(LANE, second)).grant(100)
    await second.reach(6)
    assert first.bodies == [b"0", b"1", b"2", b"3"]
    assert second.bodies == [b"4", b"5", b"6", b"7", b"8", b"9"]


async def test_many_small_grants_keep_messages_coming(deployment: Deployment) -> None:
    publisher, puller = await deployment.connect(), await deployment.connect()
    arrivals = Arrivals()
    pull = await puller.pull(LANE, arrivals)

    def one_more(lease: object) -> None:
        ack(lease)  # type: ignore[arg-type]
        pull.grant(1)
        assert pull.credit <= 8

    arrivals.react = one_more
    pull.grant(8)
    await asyncio.gather(*(publisher.publish(LANE, f"id{number}", b"%d" % number) for number in range(300)))
    await arrivals.reach(300)
    assert len(set(arrivals.bodies)) == len(arrivals.bodies) == 300
    assert pull.credit == 8


async def test_two_pulls_share_and_each_message_goes_to_one(deployment: Deployment) -> None:
    publisher, left, right = [await deployment.connect() for _ in range(3)]
    arrivals = Arrivals(), Arrivals()
    for queue, into in zip((left, right), arrivals, strict=True):
        (await queue.pull(LANE, into)).grant(5)
    for number in range(10):
        await publisher.publish(LANE, f"id{number}", b"%d" % number)
    for into in arrivals:
        await into.reach(5)
    assert sorted(arrivals[0].bodies + arrivals[1].bodies) == [b"%d" % number for number in range(10)]


async def test_a_thousand_messages_from_two_publishers_reach_three_pulls_once(deployment: Deployment) -> None:
    publishers = [await deployment.connect() for _ in range(2)]
    together = Arrivals()
    for _ in range(3):
        queue = await deployment.connect()
        mine = Arrivals()
        pull = await queue.pull(LANE, mine)

        def take(lease: object, pull: object = pull) -> None:
            lease.ack()  # type: ignore[attr-defined]
            together(lease)
            pull.grant(1)  # type: ignore[attr-defined]

        mine.react = take
        pull.grant(20)
    await asyncio.gather(
        *(publishers[number % 2].publish(LANE, f"id{number}", b"%d" % number) for number in range(1000))
    )
    await together.reach(1000)
    assert sorted(together.bodies, key=int) == [b"%d" % number for number in range(1000)]
    assert await publishers[0].depth(LANE) == 0


async def test_an_expired_lease_is_delivered_again(deployment: Deployment) -> None:
    publisher, puller = await deployment.connect(SHORT_LEASE_S), await deployment.connect(SHORT_LEASE_S)
    arrivals = Arrivals()
    (await puller.pull(LANE, arrivals)).grant(10)
    await publisher.publish(LANE, "id", b"body")
    await arrivals.reach(2)
    first, second = arrivals.all[:2]
    assert (first.body, first.delivery_count) == (b"body", 1)
    assert (second.body, second.delivery_count) == (b"body", 2)
    assert second.published_at == first.published_at


async def test_in_progress_keeps_a_lease_and_ack_and_term_end_one(deployment: Deployment) -> None:
    publisher, puller = await deployment.connect(SHORT_LEASE_S), await deployment.connect(SHORT_LEASE_S)
    arrivals = Arrivals()
    (await puller.pull(LANE, arrivals)).grant(100)
    for body in (b"renewed", b"acked", b"termed", b"left"):
        await publisher.publish(LANE, body.decode(), body)
    renewed, acked, termed, _left = await arrivals.reach(4)
    acked.ack()
    acked.nak()  # too late: does nothing
    termed.term()
    loop = asyncio.get_running_loop()

    def renew() -> None:
        nonlocal timer
        renewed.in_progress()
        timer = loop.call_later(SHORT_LEASE_S / 10, renew)

    timer = loop.call_soon(renew)
    await arrivals.until(lambda leases: any(lease.delivery_count == 3 for lease in leases))
    timer.cancel()
    assert [lease.body for lease in arrivals.all[4:]] == [b"left"] * 2


async def test_a_late_ack_still_ends_the_message(deployment: Deployment) -> None:
    publisher, puller = await deployment.connect(SHORT_LEASE_S), await deployment.connect(SHORT_LEASE_S)
    arrivals = Arrivals()
    pull = await puller.pull(LANE, arrivals)
    pull.grant(3)
    await publisher.publish(LANE, "late", b"late")
    await publisher.publish(LANE, "marker", b"marker")
    await arrivals.until(lambda leases: len(leases) == 3)  # one of the two came again, and credit is used up
    for lease in list(arrivals.all):
        if lease.body == b"late":
            lease.ack()
    pull.grant(10)
    await arrivals.until(lambda leases: any(lease.body == b"marker" and lease.delivery_count == 3 for lease in leases))
    assert b"late" not in [lease.body for lease in arrivals.all[3:]]


async def test_nak_delivers_again_at_once_or_after_the_delay(deployment: Deployment) -> None:
    publisher, puller = await deployment.connect(), await deployment.connect()
    arrivals = Arrivals()
    (await puller.pull(LANE, arrivals)).grant(10)
    await publisher.publish(LANE, "id", b"body")
    (first,) = await arrivals.reach(1)
    first.nak()
    first.ack()  # too late: does nothing
    _, second = await arrivals.reach(2)
    assert second.delivery_count == 2
    asked_at = time.monotonic()
    second.nak(0.3)
    await publisher.publish(LANE, "marker", b"marker")
    leases = await arrivals.reach(4)
    assert time.monotonic() - asked_at >= 0.29
    assert [(lease.body, lease.delivery_count) for lease in leases[2:]] == [(b"marker", 1), (b"body", 3)]


async def test_a_message_id_is_taken_once(deployment: Deployment) -> None:
    publisher, again, puller = [await deployment.connect() for _ in range(3)]
    arrivals = Arrivals()
    (await puller.pull(LANE, arrivals)).grant(10)
    await publisher.publish(LANE, "same id", b"first")
    await again.publish(LANE, "same id", b"second")
    await publisher.publish(LANE, "same\nid", b"third")
    await arrivals.reach(2)
    assert arrivals.bodies == [b"first", b"third"]


WEIRD_MODELS = [
    "a/b",
    "a.b",
    "a b",
    "a=20b",
    "*",
    ">",
    "",
    "A/B",
    "mô hình/日本",
    "tab\there",
    "x" * 400,
    "x" * 399 + "y",
]


async def test_lanes_are_independent_whatever_their_names(deployment: Deployment) -> None:
    publisher, puller = await deployment.connect(), await deployment.connect()
    lanes = [
        *(Lane("default", model) for model in WEIRD_MODELS),
        Lane("default", "a/b", "bulk"),
        Lane("other pool.*", "a/b"),
    ]
    arrivals = [Arrivals() for _ in lanes]
    for lane, into in zip(lanes, arrivals, strict=True):
        (await puller.pull(lane, into)).grant(10)
    for number, lane in enumerate(lanes):
        await publisher.publish(lane, f"id{number}", b"%d" % number)
        await publisher.publish(lane, f"end{number}", b"end")
    for number, into in enumerate(arrivals):
        await into.reach(2)
        assert into.bodies == [b"%d" % number, b"end"]


async def test_depth_counts_what_waits_and_purge_drops_all(deployment: Deployment) -> None:
    publisher, puller = await deployment.connect(SHORT_LEASE_S), await deployment.connect(SHORT_LEASE_S)
    neighbour = Lane("default", "org/model-b")
    assert await publisher.depth(LANE) == 0
    assert await publisher.purge(LANE) == 0
    for number in range(5):
        await publisher.publish(LANE, f"id{number}", b"%d" % number)
    await publisher.publish(neighbour, "other", b"other")
    assert await publisher.depth(LANE) == 5
    arrivals, others = Arrivals(), Arrivals()
    pull = await puller.pull(LANE, arrivals)
    pull.grant(2)
    await arrivals.reach(2)
    assert await publisher.depth(LANE) == 3
    assert await publisher.purge(LANE) == 5
    assert await publisher.depth(LANE) == 0
    assert await publisher.depth(neighbour) == 1
    pull.grant(5)
    (await puller.pull(neighbour, others)).grant(5)
    await others.until(lambda leases: len(leases) == 3)  # two lease times have passed
    assert len(arrivals.all) == 2
    for lease in arrivals.all:
        lease.ack()


async def test_a_closed_pull_takes_nothing_and_its_leases_stay_valid(deployment: Deployment) -> None:
    publisher, leaving, staying = [await deployment.connect() for _ in range(3)]
    mine, others = Arrivals(), Arrivals()
    pull = await leaving.pull(LANE, mine)
    pull.grant(10)
    await publisher.publish(LANE, "id0", b"0")
    (lease,) = await mine.reach(1)
    await pull.close()
    await pull.close()
    (await staying.pull(LANE, others)).grant(10)
    await publisher.publish(LANE, "id1", b"1")
    await others.reach(1)
    lease.nak()
    await others.reach(2)
    assert mine.bodies == [b"0"]
    assert [(lease.body, lease.delivery_count) for lease in others.all] == [(b"1", 1), (b"0", 2)]


async def test_messages_on_their_way_to_a_pull_that_closes_go_to_another_at_once(deployment: Deployment) -> None:
    publisher, leaving, staying = [await deployment.connect(lease_s=100) for _ in range(3)]
    mine, others = Arrivals(), Arrivals()
    pull = await leaving.pull(LANE, mine)
    for number in range(200):
        await publisher.publish(LANE, f"id{number}", b"%4000d" % number)
    closing: list[asyncio.Task[None]] = []
    mine.react = lambda lease: None if closing else closing.append(asyncio.create_task(pull.close()))
    pull.grant(200)
    await mine.reach(1)
    await closing[0]
    (await staying.pull(LANE, others)).grant(200)
    await others.reach(200 - len(mine.all))
    assert sorted(mine.bodies + others.bodies) == [b"%4000d" % number for number in range(200)]


async def test_a_callback_that_raises_stops_nothing(deployment: Deployment, caplog: pytest.LogCaptureFixture) -> None:
    publisher, puller = await deployment.connect(), await deployment.connect()
    arrivals = Arrivals()
    calls = itertools.count()

    def fail_first(lease: object) -> None:
        if next(calls) == 0:
            raise ValueError("first")
        arrivals(lease)

    (await puller.pull(LANE, fail_first)).grant(10)
    for number in range(3):
        await publisher.publish(LANE, f"id{number}", b"%d" % number)
    await arrivals.reach(2)
    assert arrivals.bodies == [b"1", b"2"]
    assert "raised" in caplog.text


async def test_plain_messages_reach_all_who_listen(deployment: Deployment) -> None:
    sender, near, far = [await deployment.connect() for _ in range(3)]
    arrivals = [Arrivals() for _ in range(4)]
    listeners = [
        await near.listen("status.pool one", arrivals[0]),
        await near.listen("status.pool one", arrivals[1]),
        await far.listen("status.pool one", arrivals[2]),
    ]
    await far.listen("status.other", arrivals[3])
    sender.send("reply.nobody", b"lost")
    sender.send("status.pool one", b"to three")
    for into in arrivals[:3]:
        await into.reach(1)
    await listeners[0].close()
    await listeners[0].close()
    sender.send("status.pool one", b"to two")
    sender.send("status.other", b"to one")
    await asyncio.gather(arrivals[1].reach(2), arrivals[2].reach(2), arrivals[3].reach(1))
    assert [into.all for into in arrivals] == [
        [b"to three"],
        [b"to three", b"to two"],
        [b"to three", b"to two"],
        [b"to one"],
    ]


async def test_messages_up_to_the_stated_size_pass_and_larger_ones_are_refused(deployment: Deployment) -> None:
    queue = await deployment.connect()
    arrivals, heard = Arrivals(), Arrivals()
    (await queue.pull(LANE, arrivals)).grant(2)
    await queue.listen("reply.me", heard)
    largest = b"x" * queue.max_message_bytes
    await queue.publish(LANE, "id", largest)
    queue.send("reply.me", largest)
    await arrivals.reach(1)
    await heard.reach(1)
    assert arrivals.bodies == heard.bodies == [largest]
    with pytest.raises(TooLarge, match=str(queue.max_message_bytes)):
        await queue.publish(LANE, "id2", largest + b"x")
    with pytest.raises(TooLarge, match=str(queue.max_message_bytes)):
        queue.send("reply.me", largest + b"x")


async def test_post_does_not_wait_and_tells_only_of_failures(deployment: Deployment) -> None:
    queue = await deployment.connect()
    arrivals = Arrivals()
    failures: list[Exception] = []
    (await queue.pull(LANE, arrivals)).grant(100)
    for number in range(50):
        queue.post(LANE, f"id{number}", b"%d" % number, failures.append)
    queue.post(LANE, "id0", b"again", failures.append)
    queue.post(LANE, "id50", b"last", failures.append)
    await arrivals.reach(51)
    assert arrivals.bodies == [*(b"%d" % number for number in range(50)), b"last"]
    assert not failures
    queue.post(LANE, "large", b"x" * (queue.max_message_bytes + 1), failures.append)
    assert [type(failure) for failure in failures] == [TooLarge]


async def test_what_is_posted_before_there_is_a_stream_arrives(deployment: Deployment) -> None:
    queue = await deployment.connect()
    failures: list[Exception] = []
    for number in range(3):
        queue.post(LANE, f"id{number}", b"%d" % number, failures.append)
    arrivals = Arrivals()
    (await queue.pull(LANE, arrivals)).grant(100)
    await arrivals.reach(3)
    assert sorted(arrivals.bodies) == [b"0", b"1", b"2"]
    assert not failures


async def test_close_leaves_nothing_behind(deployment: Deployment) -> None:
    before = asyncio.all_tasks()
    queue = await deployment.connect()
    pull = await queue.pull(LANE, Arrivals())
    pull.grant(5)
    await queue.listen("reply.me", Arrivals())
    assert queue.is_connected
    await queue.close()
    assert not queue.is_connected
    assert asyncio.all_tasks() == before
    with pytest.raises(NotReady):
        await queue.publish(LANE, "id", b"body")
    queue.send("reply.me", b"to nobody")
    await pull.close()
    await queue.close()


async def test_dead_letters_are_kept_apart_in_order_until_they_are_removed(deployment: Deployment) -> None:
    worker, operator = await deployment.connect(), await deployment.connect()
    assert await operator.buried("a pool") == []
    assert await operator.unbury("a pool") == 0
    assert await operator.unbury("a pool", 7) == 0
    for body in (b"first", b"second", b"\x00third"):
        await worker.bury("a pool", body)
    await worker.bury("another", b"elsewhere")
    letters = await operator.buried("a pool")
    assert [letter.body for letter in letters] == [b"first", b"second", b"\x00third"]
    assert await operator.unbury("a pool", letters[1].number) == 1
    assert await operator.unbury("a pool", letters[1].number) == 0
    assert await operator.buried("a pool") == [letters[0], letters[2]]
    assert await operator.unbury("a pool") == 2
    await worker.bury("a pool", b"fourth")
    (fourth,) = await operator.buried("a pool")
    assert fourth.number > letters[2].number
    assert [letter.body for letter in await operator.buried("another")] == [b"elsewhere"]
    with pytest.raises(TooLarge):
        await worker.bury("a pool", b"x" * (worker.max_message_bytes + 1))


async def test_of_too_many_dead_letters_the_oldest_go(deployment: Deployment) -> None:
    queue = await deployment.connect()
    await asyncio.gather(*(queue.bury("default", b"%d" % number) for number in range(MAX_LETTERS + 5)))
    letters = await queue.buried("default")
    assert len(letters) == MAX_LETTERS
    assert letters[-1].number - letters[0].number == MAX_LETTERS - 1


async def take(pull: Pull, num_messages: int) -> None:
    """Take, and wait for the end."""
    ended = asyncio.get_running_loop().create_future()
    pull.take(num_messages, lambda: ended.set_result(None))
    await ended


async def test_a_take_brings_what_waits_up_to_its_number_and_ends(deployment: Deployment) -> None:
    publisher, puller = await deployment.connect(), await deployment.connect()
    for number in range(5):
        await publisher.publish(LANE, f"id{number}", b"%d" % number)
    arrivals = Arrivals()
    pull = await puller.pull(LANE, arrivals)
    for most, in_all in ((3, 3), (10, 5), (10, 5)):
        await take(pull, most)
        assert arrivals.bodies == [b"%d" % number for number in range(in_all)]
    assert pull.credit == 0
    await publisher.publish(LANE, "later", b"later")
    assert await publisher.depth(LANE) == 1
    pull.grant(1)
    await arrivals.reach(6)


async def test_takes_of_two_never_share_a_message(deployment: Deployment) -> None:
    publisher, left, right = [await deployment.connect() for _ in range(3)]
    arrivals = Arrivals(), Arrivals()
    pulls = [await queue.pull(LANE, into) for queue, into in zip((left, right), arrivals, strict=True)]
    for number in range(40):
        await publisher.publish(LANE, f"id{number}", b"%d" % number)
    while len(arrivals[0].all) + len(arrivals[1].all) < 40:
        await asyncio.gather(*(take(pull, 7) for pull in pulls))
    assert sorted(arrivals[0].bodies + arrivals[1].bodies, key=int) == [b"%d" % number for number in range(40)]


async def test_a_take_from_a_closed_pull_or_queue_ends(deployment: Deployment) -> None:
    queue = await deployment.connect()
    await queue.publish(LANE, "id", b"body")
    arrivals = Arrivals()
    pull = await queue.pull(LANE, arrivals)
    await pull.close()
    await take(pull, 1)
    other = await queue.pull(Lane("default", "org/model-b"), arrivals)
    await queue.close()
    await take(other, 1)
    assert not arrivals.all


async def test_all_who_pull_hear_that_messages_wait_and_that_they_are_gone(deployment: Deployment) -> None:
    publisher, taking, watching = [await deployment.connect() for _ in range(3)]
    news = Arrivals(), Arrivals()
    taken = Arrivals()
    one = await taking.pull(LANE, taken, lambda: news[0]("news"))
    other = await watching.pull(LANE, Arrivals(), lambda: news[1]("news"))
    assert one.waiting_since == other.waiting_since == math.inf
    before = time.time()
    await publisher.publish(LANE, "id", b"body")
    await asyncio.gather(*(into.reach(1) for into in news))
    for pull in (one, other):
        assert before - 0.5 <= pull.waiting_since <= time.time() + 0.1
    await take(one, 5)
    assert taken.bodies == [b"body"]
    async with asyncio.timeout(20):
        while one.waiting_since < math.inf or other.waiting_since < math.inf:
            await publisher.depth(LANE)
    taken.all[0].nak()
    await news[1].reach(2)
    await take(other, 1)


async def test_what_came_by_credit_tells_of_what_waits_behind_it(deployment: Deployment) -> None:
    publisher, puller = await deployment.connect(), await deployment.connect()
    for number in range(3):
        await publisher.publish(LANE, f"id{number}", b"%d" % number)
    arrivals, news = Arrivals(), Arrivals()
    pull = await puller.pull(LANE, arrivals, lambda: news("news"))
    pull.grant(1)
    await news.reach(1)
    await take(pull, 10)
    assert arrivals.bodies == [b"0", b"1", b"2"]
