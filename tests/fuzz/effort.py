"""How much is tried. In CI little, and the same each time; FUZZ_EFFORT=50 tries fifty times as much, new each time."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings

__all__ = ["tries"]

EFFORT = int(os.environ.get("FUZZ_EFFORT", "1"))


def tries(num_examples: int) -> Any:
    """Settings for so many examples at effort 1."""
    return settings(
        max_examples=num_examples * EFFORT,
        derandomize=EFFORT == 1,
        deadline=None,
        database=None,
        phases=[Phase.generate] if EFFORT == 1 else [Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
