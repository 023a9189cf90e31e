"""The batches that the device has: the one that runs and at most one behind it, and when they should be done.

Pure bookkeeping with the time handed in; it launches nothing.
"""

from __future__ import annotations

from shoal.worker.work import Batch

__all__ = ["Flight"]

MAX_BATCHES = 2
LEAD_S = 0.002
"""So long before the running batch should end, or half of its time if that is less, a partial one may follow it."""

TAKE_LEAD_S = 0.03
"""So long before, beside the time that preparing takes, the next batch is taken: a busy queue should have answered."""

ANSWER_S = 0.002
"""What a take needs to bring a partial batch what has come since the first one."""

FULL_LEAD_S = 0.005
FULL_LEAD_SHARE = 0.25
"""So long before, or this part of its time if that is more, a full one may: until then what is more urgent may come."""


class Flight:
    """Batches in the order in which the device runs them.

    Attributes:
        ends_at: when the device should be idle.
        lead_starts_at: from when on a partial batch may be sent ahead.
        full_lead_starts_at: from when on a full one may.
        takes_start_at: from when on the next one may be taken from the queue.
        last_take_at: when to look once more, if that was not enough for a full one.
    """

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self.ends_at = 0.0
        self.lead_starts_at = 0.0
        self.full_lead_starts_at = 0.0
        self.takes_start_at = 0.0
        self.last_take_at = 0.0

    def __contains__(self, batch: Batch) -> bool:
        return batch in self._batches

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def is_full(self) -> bool:
        return len(self._batches) >= MAX_BATCHES

    def add(self, batch: Batch, now: float) -> None:
        """A batch was sent."""
        self._batches.append(batch)
        self._expect_end(max(now, self.ends_at) + batch.expected_s)

    def remove(self, batch: Batch, now: float) -> None:
        """A batch is done: the next one starts now."""
        self._batches.remove(batch)
        self._expect_end(now + sum(other.expected_s for other in self._batches))

    def clear(self, now: float) -> list[Batch]:
        """The device is gone; returns what it had, the running batch first."""
        lost, self._batches = self._batches, []
        self._expect_end(now)
        return lost

    def _expect_end(self, ends_at: float) -> None:
        self.ends_at = ends_at
        running_s = self._batches[0].expected_s if self._batches else 0.0
        self.lead_starts_at = ends_at - min(LEAD_S, running_s / 2)
        self.last_take_at = self.lead_starts_at - ANSWER_S
        self.full_lead_starts_at = ends_at - max(FULL_LEAD_S, FULL_LEAD_SHARE * running_s)
        prepare_s = self._batches[-1].model.prepare_s if self._batches else 0.0
        self.takes_start_at = ends_at - TAKE_LEAD_S - prepare_s
