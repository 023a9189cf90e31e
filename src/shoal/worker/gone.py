"""Requests that nobody waits for any more, remembered for a while: their chunks may still be on their way."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

__all__ = ["Gone"]

REMEMBERED_S = 120.0
MAX_REMEMBERED = 50_000


class Gone:
    """Ids of such requests.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._until

    def add(self, request_ids: Iterable[str]) -> None:
        """Remember these, and forget those of two minutes ago."""
        now = self._clock()
        self._until.update(dict.fromkeys(request_ids, now + REMEMBERED_S))
        while self._until and (len(self._until) > MAX_REMEMBERED or next(iter(self._until.values())) <= now):
            self._until.popitem(last=False)
