"""The batcher's promises, for whatever waits."""

from dataclasses import dataclass, field
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from shoal.worker.batcher import MAX_SKIPS, Waiting, pick, virtual_start

FOREVER = float("inf")


@dataclass(eq=False)
class Item:
    cost: int
    deadline: float = FOREVER
    runs_alone: bool = False
    number: int = field(default_factory=count().__next__)


costs = st.integers(1, 600)
items = st.builds(
    Item, cost=costs, deadline=st.sampled_from([FOREVER, 0.0]), runs_alone=st.sampled_from([False] * 9 + [True])
)


def waiting_of(items_: list[Item], c_s: float = 1e-4) -> Waiting[Item]:
    waiting: Waiting[Item] = Waiting()
    for arrival, item in enumerate(items_):
        waiting.add(item, virtual_start(arrival * 1e-3, item.cost * c_s))
    return waiting


def drain(waiting: Waiting[Item], max_tokens: int, max_items: int = 10**9) -> list[list[Item]]:
    batches = []
    while waiting:
        picked = waiting.take(1.0, max_tokens, max_items)
        assert picked.batch or picked.expired, "nothing leaves although something waits"
        batches.append(picked.batch)
    return batches


@given(st.lists(items, max_size=200), st.integers(1, 2000), st.integers(1, 50))
def test_nothing_is_lost_or_doubled_and_the_expired_are_told_apart(
    all_items: list[Item], tokens: int, most: int
) -> None:
    waiting, batched, expired = waiting_of(all_items), [], []
    assert waiting.tokens == sum(item.cost for item in all_items)
    while waiting:
        picked = waiting.take(1.0, tokens, most)
        batched += picked.batch
        expired += picked.expired
    assert waiting.tokens == 0
    assert sorted(item.number for item in batched + expired) == sorted(item.number for item in all_items)
    assert all(item.deadline == 0.0 for item in expired)
    assert all(item.deadline == FOREVER for item in batched)


@given(st.lists(items, max_size=200), st.integers(1, 2000), st.integers(1, 50))
def test_a_batch_never_exceeds_its_budget_unless_it_is_one_item_that_does_so_alone(
    all_items: list[Item], tokens: int, most: int
) -> None:
    for batch in drain(waiting_of(all_items), tokens, most):
        assert len(batch) <= most
        assert sum(item.cost for item in batch) <= tokens or len(batch) == 1
        assert len(batch) == 1 or not any(item.runs_alone for item in batch)


@given(st.lists(items, min_size=1, max_size=200), st.integers(1, 2000))
def test_the_first_in_order_always_leaves(all_items: list[Item], tokens: int) -> None:
    waiting = waiting_of([item for item in all_items if item.deadline == FOREVER])
    while waiting:
        head = waiting.head
        batch = waiting.take(1.0, tokens, 10**9).batch
        assert virtual_start(0, batch[0].cost * 1e-4) <= head
        assert waiting.head >= head


@given(st.lists(st.builds(Item, cost=costs), min_size=1, max_size=300), st.integers(600, 5000))
def test_a_batch_is_filled_up_to_less_than_one_item_if_enough_waits(all_items: list[Item], tokens: int) -> None:
    waiting = waiting_of(all_items)
    while waiting:
        largest = max(entry[2].cost for entry in waiting._entries)
        waits = waiting.tokens
        used = sum(item.cost for item in waiting.take(1.0, tokens, 10**9).batch)
        assert used > min(tokens, waits) - largest or used == waits


@given(st.lists(st.integers(1, 5), min_size=2, max_size=100), st.integers(1, 20))
def test_items_of_equal_cost_leave_in_the_order_in_which_they_came(kinds: list[int], tokens: int) -> None:
    all_items = [Item(cost=kind) for kind in kinds]
    left = [item for batch in drain(waiting_of(all_items), tokens) for item in batch]
    for kind in set(kinds):
        numbers = [item.number for item in left if item.cost == kind]
        assert numbers == sorted(numbers)


@given(st.integers(1, 400), st.integers(1, 50), st.integers(100, 400))
def test_a_long_item_leaves_although_short_ones_never_stop_coming(long_cost: int, short_cost: int, tokens: int) -> None:
    """Adversary: while a batch runs, twice the work comes that it held. Only what came before the long item's virtual
    start may go first; that is finite, and each batch takes of it what fits."""
    c_s = 1e-3
    waiting: Waiting[Item] = Waiting()
    long = Item(cost=long_cost + 50)
    start = virtual_start(0.0, long.cost * c_s)
    waiting.add(long, start)
    now, num_batches, most_batches = 0.0, 0, None
    batch: list[Item] = []
    while long not in batch:
        for _ in range(2 * tokens // short_cost + 1):
            waiting.add(Item(cost=short_cost), virtual_start(now, short_cost * c_s))
        if most_batches is None and now > start:
            ahead = sum(entry[2].cost for entry in waiting._entries if entry[0] < start)
            most_batches = num_batches + ahead // (tokens - short_cost) + 2
        batch = waiting.take(now, tokens, 10**9).batch
        num_batches += 1
        now += sum(item.cost for item in batch) * c_s
        assert most_batches is None or num_batches <= most_batches


def test_short_items_overtake_a_long_one_that_came_a_little_earlier() -> None:
    waiting: Waiting[Item] = Waiting()
    long, short = Item(cost=500), Item(cost=5)
    waiting.add(long, virtual_start(0.0, 0.05))
    waiting.add(short, virtual_start(0.01, 0.0005))
    assert waiting.take(1.0, 100, 10).batch == [short]
    assert waiting.take(1.0, 100, 10).batch == [long]


def test_an_item_that_runs_alone_gets_a_batch_of_its_own() -> None:
    suspect, others = Item(cost=5, runs_alone=True), [Item(cost=5), Item(cost=5)]
    assert drain(waiting_of([suspect, *others]), 100) == [[suspect], others]
    suspect = Item(cost=5, runs_alone=True)
    assert drain(waiting_of([*others, suspect]), 100) == [others, [suspect]]


def test_the_search_for_what_still_fits_is_bounded() -> None:
    misfits = [(float(i), i, Item(cost=90)) for i in range(MAX_SKIPS + 2)]
    small = Item(cost=1)
    picked = pick([*misfits, (1e9, 10**9, small)], 1.0, 100, 10)
    assert picked.batch == [misfits[0][2]]
    assert picked.rest == [*misfits[1:], (1e9, 10**9, small)]
