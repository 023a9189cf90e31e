"""When requests of an open loop are meant to be sent, decided before the first goes out: pure, seeded."""

from __future__ import annotations

import math
import random
from pathlib import Path

import msgspec

from shoal.bench.lines import read_lines
from shoal.errors import InvalidRequest

__all__ = ["bursts", "poisson", "read_trace"]


def poisson(rate: float, duration_s: float, seed: int) -> list[float]:
    """Offsets in seconds, ascending, of independent callers who send `rate` requests a second on average."""
    return bursts(rate, duration_s, 1, seed)


def bursts(rate: float, duration_s: float, burst_size: int, seed: int) -> list[float]:
    """As `poisson`, but `burst_size` callers send at the same moment; the mean rate is the same."""
    chooser = random.Random(seed)  # noqa: S311
    offsets: list[float] = []
    now = chooser.expovariate(rate / burst_size)
    while now < duration_s:
        offsets += [now] * burst_size
        now += chooser.expovariate(rate / burst_size)
    return offsets


def read_trace(path: Path, speed: float = 1.0) -> list[float]:
    """Offsets from a file of times in seconds, one a line (a number, or a JSON object with `at_s`), first at 0.

    Args:
        speed: 2 replays it twice as fast.

    Raises:
        InvalidRequest: a line is no time; names it.
    """
    times = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            value = msgspec.json.decode(line)
            time = float(value["at_s"] if isinstance(value, dict) else value)
            if not math.isfinite(time):
                raise ValueError("no point in time")
            times.append(time)
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
            raise InvalidRequest(
                f"Line {number} of {path} is {line[:60]!r}; it must be seconds, or an object with at_s."
            ) from None
    if not times:
        raise InvalidRequest(f"{path} holds no times.")
    first = min(times)
    return sorted((time - first) / speed for time in times)
