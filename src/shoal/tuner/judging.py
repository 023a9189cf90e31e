"""Whether one of two paired configurations is really better. Pure.

Trials are paired (both run in the same minute), so what counts is the ratio within a pair; noise that hits both is gone
from it. A configuration is believed only if the interval of the mean ratio leaves no doubt, and kept only if the gain
is worth another setting.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

__all__ = ["Verdict", "judge"]

LEAST_GAIN = 1.02
"""A smaller gain is not worth a setting that differs from the default."""

MOST_SPREAD = 2.0
"""Where the default itself varies more between pairs, something else uses the machine, and nothing is believed."""

_T_995 = (63.66, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947)
"""Student's t at 0.995 for 1 to 15 degrees of freedom: two-sided intervals of 99 %."""


class Verdict(msgspec.Struct, frozen=True):
    """The ratio of a candidate to what stood before it: the default, or the default with other settings.

    Attributes:
        ratio: geometric mean over pairs.
        low, high: its 99 % interval.
        num_pairs: pairs that were measured.
        spread: of what stood before, its best figure over its worst: what the machine alone makes of equal settings.
    """

    ratio: float
    low: float
    high: float
    num_pairs: int
    spread: float = 1.0

    @property
    def is_steady(self) -> bool:
        """Whether the machine was quiet enough for any verdict."""
        return self.spread <= MOST_SPREAD

    @property
    def is_better(self) -> bool:
        return self.is_steady and self.low > 1.0 and self.ratio >= LEAST_GAIN

    def text(self, other: str = "what stood before") -> str:
        """In words; `other` is what the candidate was held against."""
        text = f"{self.ratio:.3f} times {other}, {self.low:.3f} to {self.high:.3f} in {self.num_pairs} pairs"
        return text if self.is_steady else f"{text}; not believed: {other} varied {self.spread:.1f}-fold"


def judge(candidate: Sequence[float], default: Sequence[float]) -> Verdict:
    """Judge figures of pairs, higher being better; a pair with a figure of 0 counts as a loss by half."""
    ratios = [
        math.log(ours / theirs) if ours > 0 and theirs > 0 else math.log(0.5 if theirs > 0 else 1.0)
        for ours, theirs in zip(candidate, default, strict=True)
    ]
    mean = statistics.fmean(ratios)
    spread = max(default) / min(default) if min(default) > 0 else math.inf
    if len(ratios) < 2:
        return Verdict(math.exp(mean), 0.0, math.inf, len(ratios), spread)
    t = _T_995[min(len(ratios) - 2, len(_T_995) - 1)]
    half = t * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return Verdict(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(ratios), spread)
