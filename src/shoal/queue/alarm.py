"""A timer that keeps the earliest of the times that it is set for. Knows nothing of what it rings for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

__all__ = ["Alarm"]


class Alarm:
    """Rings once, at the earliest time that it was set for since it last rang or was cleared.

    Args:
        ring: is called then, in the event loop.

    Attributes:
        rings_at: when it will, on the event loop's clock; infinity if it is not set. Kept here, as uvloop's handle of
            what is due at once tells no time.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self.rings_at = math.inf
        self._on_ring = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle | None = None

    def set(self, when: float) -> None:
        """Ring then, or earlier."""
        if when < self.rings_at:
            self.clear()
            self.rings_at = when
            self._handle = self._loop.call_at(when, self._ring)

    def clear(self) -> None:
        """Do not ring."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            self.rings_at = math.inf

    def _ring(self) -> None:
        self._handle = None
        self.rings_at = math.inf
        self._on_ring()
