"""What a key has left: a bucket of tokens that fills as time passes, and a number of requests at once. Pure.

Each gateway counts for itself: behind n gateways a key may use up to n times as much.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal.errors import QuotaExceeded
from shoal.gateway.keys.keyfile import Key

__all__ = ["Quota", "Quotas"]

_SOON_S = 1.0
"""When to come back if too many requests are under way: nobody knows when one of them ends."""


class Quota:
    """What one key has used.

    Attributes:
        num_requests: under way.
    """

    __slots__ = ("_clock", "_level", "_since", "num_requests")

    def __init__(self, key: Key, clock: Callable[[], float]) -> None:
        self.num_requests = 0
        self._clock = clock
        self._level = float(key.tokens_per_minute)
        self._since = clock()

    def enter(self, key: Key) -> None:
        """Count a request that begins.

        Raises:
            QuotaExceeded: so many are under way already, or the bucket is empty.
        """
        if 0 < key.max_requests <= self.num_requests:
            raise QuotaExceeded(
                f"The API key {key.id} has {self.num_requests} requests under way; the limit is {key.max_requests}.",
                retry_after_s=_SOON_S,
            )
        if self._level < 1 and key.tokens_per_minute:
            self._need(key, 1.0)
        self.num_requests += 1

    def leave(self) -> None:
        """Count a request that has ended."""
        self.num_requests -= 1

    def charge(self, key: Key, num_tokens: int) -> None:
        """Take tokens out. A request larger than the bucket waits until it is full, and leaves it in debt.

        Raises:
            QuotaExceeded: there are fewer; says when there are enough.
        """
        self._need(key, min(float(num_tokens), key.tokens_per_minute))
        self._level -= num_tokens

    def correct(self, num_tokens: int) -> None:
        """Put tokens back that were charged and not run; take more if it is negative."""
        self._level += num_tokens

    def _need(self, key: Key, num_tokens: float) -> None:
        now, per_s = self._clock(), key.tokens_per_minute / 60
        self._level = min(key.tokens_per_minute, self._level + (now - self._since) * per_s)
        self._since = now
        if self._level < num_tokens:
            raise QuotaExceeded(
                f"The API key {key.id} has {max(0, int(self._level))} tokens left, this takes about {int(num_tokens)}; "
                f"the limit is {key.tokens_per_minute} a minute.",
                retry_after_s=(num_tokens - self._level) / per_s,
            )


class Quotas:
    """Those of all keys, by id: they outlive a change of the file."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_id: dict[str, Quota] = {}

    def of(self, key: Key) -> Quota:
        found = self._by_id.get(key.id)
        if found is None:
            found = self._by_id[key.id] = Quota(key, self._clock)
        return found

    def forget_all_but(self, keys: list[Key]) -> None:
        """Drop those of keys that are gone."""
        ids = {key.id for key in keys}
        self._by_id = {key_id: quota for key_id, quota in self._by_id.items() if key_id in ids}
