"""What tenants may send ahead of their turn: a bucket each, which fills at the tenant's fair part of the rate. Pure.

A tenant that asks for less than its part finds it full, so what others have waiting does not hold it; one that asks for
more empties it, and takes its turns like everybody.
"""

from __future__ import annotations

__all__ = ["Credit"]

_MANY = 1024


class Credit:
    """The buckets of one model's tenants; one that nobody has drawn from lately is full, and not kept."""

    def __init__(self) -> None:
        self._drawn: dict[str, tuple[float, float]] = {}

    def left(self, tenant: str, depth_tokens: float, tokens_per_s: float, now: float) -> float:
        """Tokens in a tenant's bucket, of `depth_tokens` when full."""
        return depth_tokens - self._missing(tenant, tokens_per_s, now)

    def draw(self, tenant: str, tokens: int, depth_tokens: float, tokens_per_s: float, now: float) -> None:
        """Take tokens out, as far as there are any."""
        missing = self._missing(tenant, tokens_per_s, now)
        self._drawn[tenant] = (min(missing + tokens, max(depth_tokens, missing)), now)
        if len(self._drawn) > _MANY:
            full = [name for name in self._drawn if not self._missing(name, tokens_per_s, now)]
            for name in full:
                del self._drawn[name]

    def _missing(self, tenant: str, tokens_per_s: float, now: float) -> float:
        drawn = self._drawn.get(tenant)
        return 0.0 if drawn is None else max(0.0, drawn[0] - (now - drawn[1]) * tokens_per_s)
