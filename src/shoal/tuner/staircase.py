"""The rate at which every other load holds its limit: a step up after one that did, down after one that did not. Pure.

A bisection believes each answer for ever, so one load that something else disturbed sends it astray; here it costs a
step. The estimate is where the staircase stays once it has turned around for the first time.
"""

from __future__ import annotations

import math
import statistics

__all__ = ["Staircase"]

FIRST_STEP, STEP = 1.35, 1.12
LEAST_RATE = 0.1


class Staircase:
    """Told how each load went.

    Attributes:
        rate: of the next load, in requests a second.
    """

    def __init__(self, start: float) -> None:
        self.rate = max(start, LEAST_RATE)
        self._last: bool | None = None
        self._has_turned = False
        self._held = False
        self._logs: list[float] = []

    def tell(self, *, is_good: bool) -> None:
        """How the load at `rate` went."""
        self._held |= is_good
        self._has_turned |= self._last is not None and is_good != self._last
        self._last = is_good
        if self._has_turned:
            self._logs.append(math.log(self.rate))
        step = STEP if self._has_turned else FIRST_STEP
        self.rate = max(LEAST_RATE, self.rate * step if is_good else self.rate / step)

    @property
    def estimate(self) -> float:
        """The geometric mean of rates since the first turn, the next one included; 0 if no load went well."""
        return math.exp(statistics.fmean([*self._logs, math.log(self.rate)])) if self._held else 0.0
