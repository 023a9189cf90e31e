"""The highest rate that holds a limit, from loads that held it or did not: a belief that each load sharpens. Pure.

A bisection believes each answer for ever, so one load that something else disturbed sends it astray. Here an answer
only shifts weight between all possible rates, one in ten may be wrong, and the next load goes where it tells most.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["Belief"]

_LOGS = np.linspace(-3.0, 3.0, 601)
_PRIOR_WIDTH = 0.3
"""Standard deviation, in the logarithm, of what the first guess may be off."""

_WIDTH = 0.12
"""So far from the rate, in the logarithm, a load may go either way."""

_DISTURBED, _LUCKY = 0.1, 0.02
"""How often a load fails, or holds, whatever its rate."""

_LEAST_RATE = 0.1


class Belief:
    """Told how each load went.

    Args:
        guess: of the rate, in requests a second.
    """

    def __init__(self, guess: float) -> None:
        self._guess = max(guess, _LEAST_RATE)
        self._logs = -0.5 * (_LOGS / _PRIOR_WIDTH) ** 2
        self._has_held = False

    @property
    def rate(self) -> float:
        """What the next load should be: the middle of what is believed."""
        weights = np.exp(self._logs - self._logs.max())
        return max(_LEAST_RATE, self._guess * math.exp(float(weights @ _LOGS / weights.sum())))

    def tell(self, rate: float, *, is_good: bool) -> None:
        """How a load at a rate went."""
        self._has_held |= is_good
        distance = (_LOGS - math.log(rate / self._guess)) / _WIDTH
        share_good = _LUCKY + (1 - _LUCKY - _DISTURBED) / (1 + np.exp(-distance))
        self._logs += np.log(share_good if is_good else 1 - share_good)

    @property
    def estimate(self) -> float:
        """The rate; 0 if no load held the limit."""
        return self.rate if self._has_held else 0.0
