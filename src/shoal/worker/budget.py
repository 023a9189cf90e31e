"""Who has to go when a model needs memory: the policy, pure. It gets the models that are here and a time.

A model that was loaded stays for a turn, in proportion to what loading it took, so that the device spends most of its
time on work and not on loading. A turn is short if nothing is left to do for the model, and longer if there is; after
it, a model that is wanted may take the place even of one that is busy, so that with more models in demand than fit
they take turns, and none waits for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["Choice", "Resident", "choose"]

LEAST_IDLE_S, IDLE_LOADS = 0.25, 2.0
LEAST_BUSY_S, BUSY_LOADS = 0.5, 8.0
"""A turn: so many seconds at least, and so many times what loading took."""


class Resident(msgspec.Struct, frozen=True):
    """A model that is loaded.

    Attributes:
        num_bytes: memory that it holds.
        ready_at: since when.
        used_at: when the last work for it came.
        load_s: seconds that loading it again would take.
        is_busy: whether there is work for it, here or in the queue.
        is_pinned: whether it must stay.
    """

    id: str
    num_bytes: int
    ready_at: float
    used_at: float
    load_s: float
    is_busy: bool = False
    is_pinned: bool = False

    @property
    def turn_ends_at(self) -> float:
        """From when on it may be evicted."""
        if self.is_pinned:
            return float("inf")
        least_s, loads = (LEAST_BUSY_S, BUSY_LOADS) if self.is_busy else (LEAST_IDLE_S, IDLE_LOADS)
        return self.ready_at + max(least_s, loads * self.load_s)


class Choice(msgspec.Struct, frozen=True):
    """Ids to evict; if there are none, when it is worth while to ask again."""

    victims: tuple[str, ...]
    again_at: float = float("inf")


def choose(residents: Sequence[Resident], missing_bytes: int, now: float, *, is_urgent: bool = False) -> Choice:
    """Evict enough for `missing_bytes`, or nobody: idle models first, of those the least recently used.

    Args:
        is_urgent: the memory is taken already; only pins are respected.
    """
    movable = [one for one in residents if not one.is_pinned and (is_urgent or one.turn_ends_at <= now)]
    movable.sort(key=lambda one: (one.is_busy, one.ready_at if one.is_busy else one.used_at))
    victims: list[Resident] = []
    freed = 0
    for one in movable:
        if freed >= missing_bytes:
            break
        victims.append(one)
        freed += one.num_bytes
    if freed < missing_bytes:
        return Choice((), min((one.turn_ends_at for one in residents if one.turn_ends_at > now), default=float("inf")))
    for one in reversed(victims):  # whoever need not go after all, the most recently used first
        if freed - one.num_bytes >= missing_bytes:
            victims.remove(one)
            freed -= one.num_bytes
    return Choice(tuple(one.id for one in victims))
