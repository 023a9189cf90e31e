"""Which items go next: the policy, pure. It gets what waits, a time and a budget, and returns a batch.

Items stand in the order of their virtual start, which is their arrival plus `STRETCH` times the seconds that they take:
a short item overtakes a long one that came a little earlier, and nothing can overtake for ever, because the virtual
start of what waits stays while that of new arrivals grows. This file knows no queue, model or device.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

__all__ = ["Item", "Pick", "Waiting", "pick", "virtual_start"]

STRETCH = 8.0
MAX_SKIPS = 64


class Item(Protocol):
    """What the batcher looks at.

    Attributes:
        cost: tokens.
        deadline: time after which nobody waits for it.
        runs_alone: whether it may share a batch with nothing: it is suspected of having crashed one.
    """

    @property
    def cost(self) -> int: ...
    @property
    def deadline(self) -> float: ...
    @property
    def runs_alone(self) -> bool: ...


ItemT = TypeVar("ItemT", bound=Item)
Entry = tuple[float, int, ItemT]
"""Virtual start, a number that tells equal ones apart first come first served, the item."""


class Pick(msgspec.Struct, Generic[ItemT], frozen=True):
    """A batch, what has passed its deadline, and what stays, still in order."""

    batch: list[ItemT]
    expired: list[ItemT]
    rest: list[Entry[ItemT]]


def virtual_start(arrival: float, cost_s: float) -> float:
    """Where an item stands in the order; smaller goes first."""
    return arrival + STRETCH * cost_s


def pick(waiting: Sequence[Entry[ItemT]], now: float, max_tokens: int, max_items: int) -> Pick[ItemT]:
    """Form a batch from the front of `waiting`.

    The first item in order always goes, even if it is larger than the budget; then whatever still fits, in order. The
    search ends when the batch is full or 64 items did not fit, so the batch holds more than `max_tokens` less the
    largest cost, if that much waits and `max_items` allows it.
    """
    batch: list[ItemT] = []
    expired: list[ItemT] = []
    skipped: list[Entry[ItemT]] = []
    room, num_seen = max_tokens, 0
    for entry in waiting:
        if room <= 0 or len(batch) == max_items or len(skipped) == MAX_SKIPS:
            break
        num_seen += 1
        item = entry[2]
        if item.deadline <= now:
            expired.append(item)
        elif not batch or (item.cost <= room and not item.runs_alone):
            batch.append(item)
            room = 0 if item.runs_alone else room - item.cost
        else:
            skipped.append(entry)
    return Pick(batch, expired, skipped + list(waiting[num_seen:]))


class Waiting(Generic[ItemT]):
    """The items of one model that wait for the device, in order.

    Attributes:
        tokens: sum of their costs.
    """

    def __init__(self) -> None:
        self._entries: list[Entry[ItemT]] = []
        self._num_added = 0
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def head(self) -> float:
        """Virtual start of the first in order; infinite when nothing waits."""
        return self._entries[0][0] if self._entries else float("inf")

    def add(self, item: ItemT, start: float) -> None:
        """Put an item where its virtual start belongs."""
        self._num_added += 1
        entry = (start, self._num_added, item)
        self._entries.insert(bisect_left(self._entries, entry), entry)
        self.tokens += item.cost

    def take(self, now: float, max_tokens: int, max_items: int) -> Pick[ItemT]:
        """Take a batch, and what has expired, out."""
        picked = pick(self._entries, now, max_tokens, max_items)
        self._entries = picked.rest
        self.tokens -= sum(item.cost for item in picked.batch) + sum(item.cost for item in picked.expired)
        return picked
