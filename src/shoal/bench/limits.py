"""What one machine can plan and hold open: a load beyond that is refused before the first request. Sends nothing."""

from __future__ import annotations

import resource

from shoal.bench.plan import Arrivals
from shoal.errors import InvalidRequest

__all__ = ["check_arrivals", "check_concurrency", "most_connections"]

MOST_PLANNED = 5_000_000
"""Requests of a stretch, whose times are decided beforehand: some 200 MB, and some seconds."""

_OTHER_FILES = 64
"""Open files of a generator process that are no connections."""


def most_connections() -> int:
    """Connections that a process may have open at once."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1_000_000 if allowed == resource.RLIM_INFINITY else max(1, allowed - _OTHER_FILES)


def check_arrivals(arrivals: Arrivals, duration_s: float, num_processes: int) -> None:
    """
    Raises:
        InvalidRequest: a process could not hold or send such a load; names the option, its value and the limit.
    """
    if not arrivals.is_open:
        check_concurrency(arrivals.concurrency, num_processes)
    elif arrivals.burst_size > MOST_PLANNED:
        raise InvalidRequest(f"--burst {arrivals.burst_size:,} is more than the {MOST_PLANNED:,} that can be planned.")
    elif (planned := arrivals.rate * duration_s) > MOST_PLANNED:
        raise InvalidRequest(
            f"--rate {arrivals.rate:,.6g} for --duration-s {duration_s:g} plans {planned:,.6g} requests; at most "
            f"{MOST_PLANNED:,} can be planned.",
            hint="Shorten --duration-s, or lower --rate.",
        )


def check_concurrency(concurrency: int, num_processes: int) -> None:
    """
    Raises:
        InvalidRequest: so many connections are more open files than the processes may have; names both.
    """
    most = most_connections() * num_processes
    if concurrency > most:
        raise InvalidRequest(
            f"--concurrency {concurrency:,} is more than the {most:,} connections that {num_processes} generator "
            f"process{'es' * (num_processes > 1)} may have open.",
            hint="More --processes may have more, and so may a higher limit of open files (ulimit -n).",
        )
