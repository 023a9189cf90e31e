"""Which lane the next batch is taken from, and how much of it: late, and where the oldest message has waited longest.

What stays in the queue goes to whichever worker is free first. So a worker takes one batch ahead and no more, and only
when its device is about to need it. This file knows tokens and times, never what a message means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable

from shoal.queue.base import Pull
from shoal.types import Priority
from shoal.worker.work import Model

__all__ = ["Tap", "Taps"]

MAX_TAKE = 256
"""Messages of one take."""

IDLE_CREDIT = 1
"""Messages that an idle worker lets come from a lane: all but the one that it runs at once would be bound early."""


class Tap:
    """One lane of one model, as this worker draws from it."""

    __slots__ = ("model", "priority", "pull")

    pull: Pull

    def __init__(self, model: Model, priority: Priority) -> None:
        self.model = model
        self.priority = priority

    @property
    def chunk_tokens(self) -> float:
        """Tokens that a message should have."""
        model = self.model
        return max(1.0, model.full_batch_tokens if self.priority == "bulk" else model.tokens_per_chunk)


class Taps:
    """All that one device draws from.

    Args:
        start_of: where what a tap holds stands in the order of items that wait here, see `batcher.virtual_start`.
        objective_s: what is older by so much than all that is prepared need not wait for it.
        on_news: called when there may be something to take or to grant.
    """

    def __init__(
        self,
        start_of: Callable[[Tap], float],
        objective_s: float,
        on_news: Callable[[], None],
    ) -> None:
        self._start_of = start_of
        self._objective_s = objective_s
        self._on_news = on_news
        self._known: set[Tap] = set()  # are drawn from
        self._told: set[Tap] = set()  # of them, those that may hold something
        self._short: set[Tap] = set()  # of them, those that had less than was asked for this time
        self._spent: set[Tap] = set()  # have no credit
        self._quiet: set[Tap] = set()  # of them, those of which nothing was heard since `look_round`
        self._holders: set[Model] = set()  # looking at all models would cost each request
        self._taking: Tap | None = None
        self._num_missing = 0

    @property
    def is_taking(self) -> bool:
        """Whether a take is on its way."""
        return self._taking is not None

    def add(self, taps: Iterable[Tap]) -> None:
        """Draw from these from now on, and let the first messages come."""
        for tap in taps:
            self._known.add(tap)
            tap.pull.grant(IDLE_CREDIT)
            if tap.pull.waiting_since < math.inf:
                self.tell(tap)

    def forget(self, taps: Collection[Tap]) -> None:
        """Draw from these no more."""
        for some in (self._known, self._told, self._short, self._spent, self._quiet):
            some.difference_update(taps)

    @property
    def holders(self) -> Collection[Model]:
        """Models of which something is here and not on the device."""
        self._holders = {model for model in self._holders if _ahead(model)}
        return self._holders

    def hold(self, model: Model) -> None:
        """Something of this model is here."""
        self._holders.add(model)

    def drop(self, model: Model) -> None:
        """What is here of this model is nothing any more."""
        self._holders.discard(model)

    def tell(self, tap: Tap) -> None:
        """Messages wait there. A pull may say so while it is being opened, and before anything is drawn from it."""
        if tap not in self._known:
            return
        self._told.add(tap)
        self._short.discard(tap)
        self._quiet.discard(tap)
        self._on_news()

    def came(self, tap: Tap) -> bool:
        """A message came from there; returns whether it was taken, or else came because there was credit."""
        is_taken = tap is self._taking
        self._num_missing -= is_taken
        if tap.pull.credit <= 0:
            self._spent.add(tap)
            self._on_news()
        return is_taken

    def look_again(self) -> None:
        """What came short may hold something by now."""
        self._short.clear()

    def take(self, *, is_idle: bool) -> None:
        """Take what the next batch lacks. If nothing is known to wait, an idle worker lets the first come by itself."""
        while not self.is_taking and (chosen := self._choose()) is not None:
            self._take(*chosen)
        if is_idle and self._spent and not self.is_taking and not self.holders:
            self._grant(self._spent)

    def look_round(self) -> None:
        """Called now and then: let messages come from lanes of which a busy worker has heard nothing for long."""
        self._grant(self._quiet & self._spent)
        self._quiet = {tap for tap in self._spent if tap.pull.waiting_since == math.inf}

    def _grant(self, taps: set[Tap]) -> None:
        self._spent = self._spent - taps
        for tap in taps:
            tap.pull.grant(IDLE_CREDIT)

    def _take(self, tap: Tap, num_messages: int) -> None:
        self._taking, self._num_missing = tap, num_messages
        tap.pull.take(num_messages, self._ended)

    def _ended(self) -> None:
        if self._taking is not None and self._num_missing > 0:
            self._short.add(self._taking)
        self._taking = None
        self._on_news()

    def _choose(self) -> tuple[Tap, int] | None:
        """Where to take from now, and how many messages; None if the next batch has all that it can get."""
        self._told = {tap for tap in self._told if tap.pull.waiting_since < math.inf}
        starts = {tap: self._start_of(tap) for tap in self._told - self._short}
        if not starts:
            return None
        tap, num_batches = min(starts, key=starts.__getitem__), 1
        ahead = min(self.holders, key=_head, default=None)
        if ahead is not None and starts[tap] >= _head(ahead):  # nothing is older than what is here: only add to that
            of_model = [one for one in starts if one.model is ahead]
            if not of_model:
                return None
            tap = min(of_model, key=starts.__getitem__)
        elif ahead is not None and starts[tap] < _head(ahead) - self._objective_s:
            num_batches = 2
        held = _ahead(tap.model)
        room_tokens = num_batches * tap.model.full_batch_tokens - held
        num_messages = min(int(room_tokens / tap.chunk_tokens), MAX_TAKE)
        return (tap, max(num_messages, 0 if held else 1)) if num_messages > 0 or not held else None


def _ahead(model: Model) -> int:
    """Tokens of a model that are here and not on the device."""
    return model.waiting.tokens + model.preparing_tokens


def _head(model: Model) -> float:
    """Where the oldest of them stands in the order; what is being prepared is for the next batch."""
    return -math.inf if model.preparing_tokens else model.waiting.head
