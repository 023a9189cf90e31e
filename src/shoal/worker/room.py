"""The device's memory as a budget: models take room before they are loaded and give it back when they are gone.

Who needs more than is free waits in line, in the order of demand, until others were evicted. Which ones is decided in
`budget`; how a model leaves is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from shoal.errors import ModelRefused
from shoal.worker.budget import Resident, choose

__all__ = ["NoRoom", "Room"]

LOOK_AGAIN_S = 0.25
"""A model that was busy may have become idle: nobody says so."""


class NoRoom(Exception):
    """It would fit only if others were evicted, and that was not asked for."""


class Room:
    """Who holds how much.

    Args:
        residents: the models that may be evicted, and pinned ones.
        pinned_bytes: what the pinned ones hold.
        evict: makes a model leave; returns when it is gone and its room was freed.

    Attributes:
        budget_bytes: what may be held in all.
        is_strict: whether somebody chose the budget. Else it is a guess, as a model's size is, and stops no model that
            would have the memory to itself.
        held: bytes by model, of those that load, serve or leave.
        line: held by who takes room. First come, first served: a large model is not passed by small ones for ever.
    """

    def __init__(
        self,
        budget_bytes: int,
        is_strict: bool,
        residents: Callable[[], Sequence[Resident]],
        pinned_bytes: Callable[[], int],
        evict: Callable[[str], Awaitable[None]],
    ) -> None:
        self.budget_bytes = budget_bytes
        self.is_strict = is_strict
        self.held: dict[str, int] = {}
        self.line = asyncio.Lock()
        self._residents = residents
        self._pinned_bytes = pinned_bytes
        self._evict = evict
        self._changed = asyncio.Event()

    @property
    def used_bytes(self) -> int:
        return sum(self.held.values())

    def may_ever_hold(self, num_bytes: int) -> bool:
        """Whether a model of this size would fit if all that may leave had left."""
        return self._counted(num_bytes) <= self.most_bytes

    @property
    def most_bytes(self) -> int:
        """What a model could have if all that may leave had left."""
        return self.budget_bytes - self._pinned_bytes()

    async def take(self, model: str, num_bytes: int, *, may_evict: bool = True) -> None:
        """Hold room for a model, once there is some; only for who holds the line.

        Raises:
            ModelRefused: it would not fit if all others had left.
            NoRoom: it does not fit now, and nobody may be evicted.
        """
        num_bytes = self._counted(num_bytes)
        self._check(model, num_bytes)
        while (missing := self.used_bytes + num_bytes - self.budget_bytes) > 0:
            if not may_evict:
                raise NoRoom
            await self._make_room(missing)
            self._check(model, num_bytes)
        self.held[model] = num_bytes

    async def correct(self, model: str, num_bytes: int) -> None:
        """Put what a model really takes in the place of the estimate; evicts others if that is too much.

        Raises:
            ModelRefused: it does not fit even if all others have left.
        """
        num_bytes = self.held[model] = self._counted(num_bytes)
        missing = self.used_bytes - self.budget_bytes
        if missing > 0:
            self._check(model, num_bytes)
            others = [one for one in self._residents() if one.id != model]
            victims = choose(others, missing, 0.0, is_urgent=True).victims
            await asyncio.gather(*map(self._evict, victims))

    def free(self, model: str) -> None:
        """A model is gone."""
        self.held.pop(model, None)
        self.look_again()

    def look_again(self) -> None:
        """Something has changed: a model is ready, say, and may be evicted from now on."""
        self._changed.set()

    async def _make_room(self, missing_bytes: int) -> None:
        """Evict enough, or wait until it is worth while to try again."""
        loop = asyncio.get_running_loop()
        choice = choose(self._residents(), missing_bytes, loop.time())
        if choice.victims:
            await asyncio.gather(*map(self._evict, choice.victims))
            return
        self._changed.clear()
        try:
            await asyncio.wait_for(self._changed.wait(), min(LOOK_AGAIN_S, max(0.01, choice.again_at - loop.time())))
        except TimeoutError:
            return

    def _counted(self, num_bytes: int) -> int:
        if self.is_strict or self.most_bytes < self.budget_bytes:
            return num_bytes
        return min(num_bytes, self.budget_bytes)

    def _check(self, model: str, num_bytes: int) -> None:
        if num_bytes > self.most_bytes:
            pinned = self.budget_bytes - self.most_bytes
            raise ModelRefused(
                f"{model} takes about {num_bytes / 2**20:.0f} MiB; the memory budget is "
                f"{self.budget_bytes / 2**20:.0f} MiB, {pinned / 2**20:.0f} MiB of it for pinned models.",
                hint="Raise --memory-budget, pin fewer models, or serve it from another worker.",
            )
