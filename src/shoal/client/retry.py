"""When to try a request again. Pure but for the clock that it is given.

Every request of this client may be repeated without harm. A failure that says when to come back (Retry-After) is
repeated as long as the caller's time allows; any other that may pass, a refused or lost connection above all, a few
times with growing pauses, so that a server that is not there is reported soon.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from shoal.errors import DeadlineExceeded, ShoalError

__all__ = ["Patience"]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0


class Patience:
    """The tries of one request.

    Attributes:
        num_tries: tries that failed so far.
    """

    def __init__(self, timeout_s: float, max_retries: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.num_tries = 0
        self._max_retries = max_retries
        self._clock = clock
        self._ends = clock() + timeout_s

    @property
    def remaining_s(self) -> float:
        """Seconds left to the caller, never below zero."""
        return max(0.0, self._ends - self._clock())

    def pause_s(self, error: ShoalError) -> float:
        """Seconds to wait before the next try.

        Raises:
            ShoalError: `error` itself, if there shall be no further try.
        """
        self.num_tries += 1
        if not error.is_retryable or isinstance(error, DeadlineExceeded) or not self._max_retries:
            raise error
        if error.retry_after_s is None and self.num_tries > self._max_retries:
            raise error
        pause_s = error.retry_after_s
        if pause_s is None:
            # Up to half off at random, so that clients that failed together do not come back together.
            grown_s = min(_FIRST_PAUSE_S * 2 ** (self.num_tries - 1), _LONGEST_PAUSE_S)
            pause_s = grown_s * random.uniform(0.5, 1.0)  # noqa: S311
        if pause_s >= self.remaining_s:
            raise error
        return pause_s
