"""The gate in front of one model's lanes: chunks wait here, and only a window of them is on its way to the workers.

While there is room, a chunk goes at once. Else it waits for its turn (see `turns`), or its request is refused at once
if it would wait too long. What is on its way in a lower lane takes no room from a higher one: workers put the higher
first. A tenant that asks for less than its fair part goes at once, in the most urgent lane, while others have filled
the window; so a flood holds only itself. Every gateway has gates of its own; what others do shows in the rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from shoal.errors import Overloaded
from shoal.gateway.credit import Credit
from shoal.gateway.open_request import HERE, OpenRequest
from shoal.gateway.supply import Supply
from shoal.gateway.turns import LANES, Turns
from shoal.types import ChunkReply, LoadedModel

__all__ = ["Gate"]

SHORT_CHUNKS = 2
"""A request of more is long and goes to the lowest lane, unless it asks for the most urgent: short ones pass it."""

LEAST_RETRY_S = 0.1

_LOWEST = len(LANES) - 1
_DEFAULT = LANES.index("default")


class Wait(NamedTuple):
    """How long a request would wait for its turn, and how long it may."""

    expected_s: float
    allowed_s: float

    @property
    def is_too_long(self) -> bool:
        return self.expected_s > self.allowed_s

    def error(self, model: str) -> Overloaded:
        """What the client is told."""
        return Overloaded(
            f"{model} has work for {self.expected_s:.2g} s before this request, which may wait for "
            f"{self.allowed_s:.2g} s.",
            hint="Try again after the time stated, or allow more with the header X-Shoal-Timeout (seconds).",
            retry_after_s=max(self.expected_s - self.allowed_s, LEAST_RETRY_S),
        )


NO_WAIT = Wait(0.0, 0.0)


class Gate:
    """What the requests for one model have on its way, and what they have here.

    Attributes:
        model: its id.

    Args:
        publish: puts a chunk of a request into the lane of that rank, now.
        crowded: the models of all gates that are crowded; it is kept so.
    """

    def __init__(self, model: str, publish: Callable[[OpenRequest, int, int], None], crowded: set[str]) -> None:
        self.model = model
        self._publish = publish
        self._crowded = crowded
        self._turns: Turns[OpenRequest] = Turns()
        self._supply = Supply()
        self._on_way = [0] * len(LANES)
        self._of_tenant: dict[str, int] = {}
        self._credit = Credit()

    @property
    def is_crowded(self) -> bool:
        """Whether something waits here."""
        return self._turns.tokens > 0

    @property
    def waiting_s(self) -> float:
        """Seconds of work that waits here."""
        return self._turns.tokens / self._supply.tokens_per_s

    @property
    def on_way_s(self) -> float:
        """Seconds of work published and not answered."""
        return sum(self._on_way) / self._supply.tokens_per_s

    def know(self, loaded: Sequence[LoadedModel], now: float) -> None:
        """Take in what workers that have the model ready announce."""
        self._supply.know(loaded)
        self._pump(now)

    def enter(self, request: OpenRequest, now: float, max_wait_s: float) -> None:
        """Publish what may go now, and let the rest wait.

        Raises:
            Overloaded: it would wait too long.
        """
        rank, costs = request.rank, request.costs
        if rank and len(costs) > SHORT_CHUNKS:
            rank = _LOWEST
        if len(costs) == 1 and not self.is_crowded and self._room(rank) > 0:
            self._go(request, 0, rank)
        elif rank == _DEFAULT and self._is_quiet(request.tenant, sum(costs), now):
            for index in range(len(costs)):
                self._go_ahead(request, index, 0, now)
        else:
            self._count(0, now)
            wait = self.wait(rank, request.tenant, sum(costs), now, request.deadline - now, max_wait_s)
            if wait.is_too_long:
                raise wait.error(self.model)  # made here: kept in a variable, it would be a cycle through its traceback
            request.part = self._turns.add(request, rank)
            self._pump(now)

    def wait(self, rank: int, tenant: str, tokens: int, now: float, left_s: float, max_wait_s: float) -> Wait:
        """How long so many tokens more would wait.

        They may wait `max_wait_s`, or half of what they leave of the `left_s` that they have if that is less. While
        nothing waits before them, they do not wait.
        """
        ahead = self._turns.ahead(rank, tenant, tokens)
        if not ahead or (rank == _DEFAULT and self._is_quiet(tenant, tokens, now)):
            return NO_WAIT
        per_s = self._supply.tokens_per_s
        return Wait(
            (sum(self._on_way[: rank + 1]) + ahead) / per_s,
            min(max_wait_s, max(0.0, left_s - tokens / per_s) / 2),
        )

    def answered(self, request: OpenRequest, reply: ChunkReply, now: float) -> None:
        """A chunk is back: something else may go."""
        cost = request.costs[reply.index]
        self._release(request, reply.index)
        if reply.error is None:
            self._supply.learn(cost, sum(reply.num_tokens))
        if self.is_crowded:
            self._pump(now)
            self._count(cost, now)

    def leave(self, request: OpenRequest, now: float) -> bool:
        """A request has ended; returns whether chunks of it are still on their way."""
        if not request.missing:
            return False
        if request.part is not None:
            self._turns.drop(request.part)
        on_their_way = request.on_their_way
        for index in on_their_way:
            self._release(request, index)
        self._pump(now)
        self._count(0, now)
        return bool(on_their_way)

    def _count(self, tokens: int, now: float) -> None:
        """Tokens came back to a crowd, or whether there is one may have changed."""
        self._supply.count(tokens, now, is_crowded=self.is_crowded)

    def _room(self, rank: int) -> float:
        return self._supply.window_tokens - sum(self._on_way[: rank + 1])

    def _pump(self, now: float) -> None:
        if self.is_crowded:
            room = [self._room(rank) for rank in range(len(LANES))]
            for request, index, rank in self._turns.take(now, room, self._supply.window_tokens):
                self._go_ahead(request, index, rank, now)
        if self.is_crowded:
            self._crowded.add(self.model)
        else:
            self._crowded.discard(self.model)

    def _go_ahead(self, request: OpenRequest, index: int, rank: int, now: float) -> None:
        """Publish a chunk while others wait."""
        self._go(request, index, rank)
        num_tenants, supply = len(self._of_tenant), self._supply
        depth, per_s = supply.window_tokens / num_tenants, supply.tokens_per_s / num_tenants
        self._credit.draw(request.tenant, request.costs[index], depth, per_s, now)

    def _go(self, request: OpenRequest, index: int, rank: int) -> None:
        cost = request.costs[index]
        request.ranks[index] = rank
        self._on_way[rank] += cost
        self._of_tenant[request.tenant] = self._of_tenant.get(request.tenant, 0) + cost
        self._publish(request, index, rank)

    def _release(self, request: OpenRequest, index: int) -> None:
        cost, rank = request.costs[index], request.ranks[index]
        if rank == HERE:
            return
        self._on_way[rank] -= cost
        left = self._of_tenant[request.tenant] - cost
        if left:
            self._of_tenant[request.tenant] = left
        else:
            del self._of_tenant[request.tenant]

    def _is_quiet(self, tenant: str, tokens: int, now: float) -> bool:
        """Whether a tenant asks for less than its fair part of the workers, these tokens included, beside others."""
        num_tenants = len(self._of_tenant) + (tenant not in self._of_tenant)
        if num_tenants == 1 or self._turns.is_waiting(tenant):
            return False
        depth, per_s = self._supply.window_tokens / num_tenants, self._supply.tokens_per_s / num_tenants
        return self._credit.left(tenant, depth, per_s, now) >= tokens
