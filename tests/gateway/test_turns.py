"""What the policy promises, whatever waits: nothing lost, nothing starved, shares in tokens, short before long."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.gateway.turns import AGEING, LANES, TURN_TOKENS, Turns

FOREVER = float("inf")
INTERACTIVE, DEFAULT, BULK = range(3)
MOST_TOKENS = 3000


@dataclass(eq=False)
class Request:
    costs: list[int]
    tenant: str = ""
    deadline: float = FOREVER
    rank: int = DEFAULT
    number: int = field(default_factory=itertools.count().__next__)


COSTS = st.lists(st.integers(1, MOST_TOKENS), min_size=1, max_size=6)
REQUESTS = st.lists(
    st.builds(
        Request, COSTS, st.sampled_from("abc"), st.sampled_from([FOREVER, FOREVER, 0.0]), st.sampled_from(range(3))
    ),
    max_size=40,
)
ROOM = st.integers(1, 5000)


def turns_of(*requests: Request) -> Turns[Request]:
    turns: Turns[Request] = Turns()
    for request in requests:
        turns.add(request, request.rank)
    return turns


def order(turns: Turns[Request]) -> Iterator[tuple[Request, int]]:
    """What goes, with room for one chunk at a time; what a lane has earned goes beside."""
    while turns.tokens:
        yield from ((request, index) for request, index, _ in turns.take(1.0, [1e-9] * len(LANES), FOREVER))


@settings(deadline=None)
@given(REQUESTS, ROOM)
def test_all_goes_once_and_in_order_but_what_is_past_its_deadline(requests: list[Request], room: int) -> None:
    """And work is conserved: with room for something, something goes."""
    turns, gone = turns_of(*requests), []
    assert turns.tokens == sum(sum(request.costs) for request in requests)
    while turns.tokens:
        before = turns.tokens
        going = turns.take(1.0, [room] * len(LANES), -FOREVER)
        assert turns.tokens < before
        assert sum(request.costs[index] for request, index, _ in going[:-1]) < room
        gone += going
    assert all(rank == request.rank for request, _, rank in gone)
    for request in requests:
        indices = [index for other, index, _ in gone if other is request]
        assert indices == ([] if request.deadline == 0.0 else list(range(len(request.costs))))


@settings(deadline=None)
@given(REQUESTS, st.data())
def test_what_is_dropped_never_goes(requests: list[Request], data: st.DataObject) -> None:
    turns: Turns[Request] = Turns()
    parts = [turns.add(request, request.rank) for request in requests]
    early = turns.take(-1.0, [data.draw(ROOM)] * len(LANES), FOREVER)
    dropped = data.draw(st.lists(st.sampled_from(parts), unique=True)) if parts else []
    for part in dropped:
        turns.drop(part)
    late = turns.take(-1.0, [FOREVER] * len(LANES), FOREVER)
    assert not {request.number for request, _, _ in late} & {part.request.number for part in dropped}
    assert turns.tokens == 0
    kept = sum(len(part.request.costs) for part in parts if part not in dropped)
    assert len(late) >= kept - len(early)


@settings(deadline=None)
@given(st.lists(st.integers(1, MOST_TOKENS), min_size=2, max_size=5), st.integers(20, 60))
def test_tenants_get_equal_tokens_whatever_their_chunks_cost(costs: list[int], num_rounds: int) -> None:
    """While all have something waiting, two of them are never further apart than a turn and a chunk of each."""
    num_chunks = num_rounds * MOST_TOKENS
    requests = [Request([cost] * (num_chunks // cost), tenant=str(number)) for number, cost in enumerate(costs)]
    turns, got = turns_of(*requests), Counter({request.tenant: 0 for request in requests})
    for request, index in itertools.islice(order(turns), num_rounds):
        got[request.tenant] += request.costs[index]
        assert max(got.values()) - min(got.values()) <= 2 * (TURN_TOKENS + MOST_TOKENS)


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, TURN_TOKENS), st.integers(1, 10))
def test_a_new_tenant_waits_for_a_turn_of_each_other_at_most(num_waiting: int, cost: int, num_tenants: int) -> None:
    floods = [Request([cost], tenant=f"flood {n % num_tenants}") for n in range(num_waiting * num_tenants)]
    turns = turns_of(*floods)
    turns.take(1.0, [5 * cost] * len(LANES), 0.0)
    turns.add(quiet := Request([cost], tenant="quiet"), DEFAULT)
    others = itertools.takewhile(lambda going: going[0] is not quiet, order(turns))
    assert cost * len(list(others)) <= num_tenants * (2 * TURN_TOKENS)


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 30))
def test_short_requests_pass_long_ones_of_the_same_tenant(num_long: int, num_short: int) -> None:
    """A long chunk is saved up for, a turn a round; a short one goes in its first."""
    longs = [Request([8 * TURN_TOKENS] * 10) for _ in range(num_long)]
    shorts = [Request([TURN_TOKENS // 4]) for _ in range(num_short)]
    turns = turns_of(*longs, *shorts)
    assert [request for request, _ in itertools.islice(order(turns), num_short)] == shorts


def test_long_requests_take_turns() -> None:
    longs = [Request([TURN_TOKENS] * 6) for _ in range(3)]
    going = [request.number for request, _ in order(turns_of(*longs))]
    for start in range(0, 18, 3):
        assert set(going[start : start + 3]) == {request.number for request in longs}


@settings(deadline=None)
@given(st.sampled_from([(INTERACTIVE, DEFAULT), (INTERACTIVE, BULK), (DEFAULT, BULK)]), st.integers(1, 500))
def test_a_higher_lane_goes_first_and_a_lower_one_gets_its_part(lanes: tuple[int, int], cost: int) -> None:
    high, low = (Request([cost] * 400, rank=rank) for rank in lanes)
    turns = turns_of(low, high)
    going = [request for request, _ in itertools.islice(order(turns), 200)]
    assert all(request is high for request in going[:AGEING])
    assert 0 <= going.count(low) - 200 // (AGEING + 1) <= 1


def test_what_is_on_its_way_in_a_lower_lane_takes_no_room_from_a_higher_one() -> None:
    turns = turns_of(Request([10] * 5, rank=BULK), Request([10] * 5, rank=DEFAULT))
    going = turns.take(1.0, [30.0, 20.0, -100.0], 0.0)
    assert [rank for _, _, rank in going] == [DEFAULT, DEFAULT]
    assert turns.take(1.0, [30.0, 0.0, 0.0], 0.0) == []


def test_what_goes_in_a_higher_lane_takes_room_from_the_lower_ones() -> None:
    turns = turns_of(Request([10] * 5, rank=BULK), Request([10] * 2, rank=INTERACTIVE))
    going = turns.take(1.0, [100.0, 100.0, 30.0], 0.0)
    assert [rank for _, _, rank in going] == [INTERACTIVE, INTERACTIVE, BULK]


def test_one_chunk_that_costs_a_thousand_turns_is_found_at_once() -> None:
    huge = [Request([1000 * TURN_TOKENS], tenant=str(number % 3)) for number in range(300)]
    assert len(turns_of(*huge).take(1.0, [FOREVER] * 3, 0.0)) == 300


@settings(deadline=None)
@given(REQUESTS, COSTS, st.sampled_from("abcd"), st.sampled_from(range(3)))
def test_ahead_is_about_what_goes_before(requests: list[Request], costs: list[int], tenant: str, rank: int) -> None:
    """Up to a turn and a chunk for each that waits, and what lower lanes have earned."""
    for request in requests:
        request.deadline = FOREVER
    turns = turns_of(*requests)
    tokens = sum(costs)
    expected = turns.ahead(rank, tenant, tokens)
    turns.add(mine := Request(costs, tenant=tenant), rank)
    going = list(order(turns))
    last = max(place for place, (request, _) in enumerate(going) if request is mine)
    before = sum(request.costs[index] for request, index in going[:last] if request is not mine)
    slack = (len(requests) + 1) * (2 * TURN_TOKENS + MOST_TOKENS)
    assert before <= (expected + tokens) * (1 + 2 / AGEING) + slack
    assert before >= min(expected, AGEING * tokens) - slack  # who waits long enough goes before higher lanes
