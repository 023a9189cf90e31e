"""How long a search takes at least, whatever its budget: told before it begins. Pure."""

from __future__ import annotations

from shoal.tuner.objectives import Objective
from shoal.tuner.search import LEAST_FITS, LEAST_PAIRS, MOST_PAIRS
from shoal.tuner.space import Space
from shoal.tuner.trials import FIT_STRETCHES

__all__ = ["least_s"]


def least_s(space: Space, objective: Objective, num_beside: int = 0) -> float:
    """Seconds of load if all that must be tried runs; servers start besides, and a verdict may need more settings."""
    num_fits = min(LEAST_FITS, sum(len(knob.values) for knob in space.knobs))
    fitted = FIT_STRETCHES * (1 + num_fits + num_beside)
    raced = (1 + num_fits + 2 * LEAST_PAIRS) if num_fits else 0
    beside = 2 * MOST_PAIRS * num_beside
    return (fitted + (raced + beside) * objective.num_stretches) * objective.stretch_s
