"""A histogram of durations with buckets that grow by 1 %: like an HDR histogram it gives any percentile, within 1 %, in
little memory, and those of several processes add up. What failed counts as slower than everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

__all__ = ["Histogram"]

LEAST_S = 1e-6
GROWTH = 1.01
_LOG_GROWTH = math.log(GROWTH)


class Histogram(msgspec.Struct):
    """Durations in seconds.

    Attributes:
        counts: how many, by bucket; bucket b holds up to LEAST_S * GROWTH ** b.
        num_failed: those that never ended well.
        total_s, longest_s: of the rest, exact.
    """

    counts: dict[int, int] = {}
    num_failed: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0

    def add(self, duration_s: float) -> None:
        """Count a duration; what is below a microsecond counts as one."""
        bucket = math.ceil(math.log(max(duration_s, LEAST_S) / LEAST_S) / _LOG_GROWTH)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.total_s += duration_s
        self.longest_s = max(self.longest_s, duration_s)

    def fail(self) -> None:
        """Count one that failed."""
        self.num_failed += 1

    def merge(self, other: Histogram) -> None:
        """Count all that another one counted."""
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.num_failed += other.num_failed
        self.total_s += other.total_s
        self.longest_s = max(self.longest_s, other.longest_s)

    @staticmethod
    def sum(histograms: Iterable[Histogram]) -> Histogram:
        """All of them in one."""
        total = Histogram()
        for one in histograms:
            total.merge(one)
        return total

    @property
    def num_ended(self) -> int:
        """Those that did not fail."""
        return sum(self.counts.values())

    @property
    def mean_s(self) -> float:
        """Of those that did not fail; NaN if there are none."""
        return self.total_s / self.num_ended if self.counts else math.nan

    def percentile_s(self, percent: float) -> float:
        """The duration that so many percent do not exceed; infinite where that takes in what failed, NaN if empty."""
        num_all = self.num_ended + self.num_failed
        if num_all == 0:
            return math.nan
        rank, seen = max(1, math.ceil(percent / 100 * num_all - 1e-9)), 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= rank:
                return min(LEAST_S * GROWTH**bucket, self.longest_s)
        return math.inf

    def share_within(self, limit_s: float) -> float:
        """The share of all that ended well within a limit; NaN if there are none."""
        num_all = self.num_ended + self.num_failed
        within = sum(count for bucket, count in self.counts.items() if LEAST_S * GROWTH**bucket <= limit_s)
        return within / num_all if num_all else math.nan

    def shares(self) -> list[tuple[float, float]]:
        """(seconds, share of all that took at most that), ascending: what a plot of the distribution needs."""
        num_all, seen, points = self.num_ended + self.num_failed, 0, []
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            points.append((min(LEAST_S * GROWTH**bucket, self.longest_s), seen / num_all))
        return points
