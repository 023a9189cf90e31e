"""The gate in front of one model's lanes: chunks wait here, and only a window of them is on its way to the workers.

While there is room, a chunk goes at once. Else it waits for its turn (see `turns`), or its request is refused at once
if it would wait too long. What is on its way in a lower lane takes no room from a higher one: workers put the higher
first. A tenant that has little on its way beside others' much goes at once, in the most urgent lane; so a flood that
has filled the window holds only itself. Every gateway has gates of its own; what others do shows in the rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shoal.errors import Overloaded
from shoal.gateway.open_request import HERE, OpenRequest
from shoal.gateway.supply import Supply
from shoal.gateway.turns import LANES, Turns
from shoal.types import ChunkReply, LoadedModel

__all__ = ["Gate"]

SHORT_CHUNKS = 2
"""A request of more is long and goes to the lowest lane, unless it asks for the most urgent: short ones pass it."""

LITTLE = 0.5
"""The part of its fair share of the window that a tenant may have on its way and still count as quiet."""

LEAST_RETRY_S = 0.1

_LOWEST = len(LANES) - 1
_DEFAULT = LANES.index("default")


class Gate:
    """What the requests for one model have on its way, and what they have here.

    Args:
        model: its id.
        publish: puts a chunk of a request into the lane of that rank, now.
    """

    def __init__(self, model: str, publish: Callable[[OpenRequest, int, int], None]) -> None:
        self._model = model
        self._publish = publish
        self._turns: Turns[OpenRequest] = Turns()
        self._supply = Supply()
        self._on_way = [0] * len(LANES)
        self._of_tenant: dict[str, int] = {}

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
        elif rank == _DEFAULT and self._is_quiet(request.tenant, sum(costs)):
            for index in range(len(costs)):
                self._go(request, index, 0)
        else:
            self._count(0, now)
            self.check(rank, request.tenant, sum(costs), request.deadline - now, max_wait_s)
            request.part = self._turns.add(request, rank)
            self._pump(now)

    def check(self, rank: int, tenant: str, tokens: int, left_s: float, max_wait_s: float) -> None:
        """Refuse so many tokens more that would wait too long: longer than `max_wait_s`, or than half of what they
        leave of the time that they have. While nothing waits before them, they never would.

        Raises:
            Overloaded: they would; it says for how long.
        """
        ahead = self._turns.ahead(rank, tenant, tokens)
        if not ahead or (rank == _DEFAULT and self._is_quiet(tenant, tokens)):
            return
        per_s = self._supply.tokens_per_s
        wait_s = (sum(self._on_way[: rank + 1]) + ahead) / per_s
        allowed_s = min(max_wait_s, max(0.0, left_s - tokens / per_s) / 2)
        if wait_s > allowed_s:
            raise Overloaded(
                f"{self._model} has work for {wait_s:.2g} s before this request, which may wait for {allowed_s:.2g} s.",
                hint="Try again after the time stated, or allow more with the header X-Shoal-Timeout (seconds).",
                retry_after_s=max(wait_s - allowed_s, LEAST_RETRY_S),
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
                self._go(request, index, rank)

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

    def _is_quiet(self, tenant: str, tokens: int) -> bool:
        """Whether so many tokens more fit beside the little that a tenant has on its way, while others have much."""
        own = self._of_tenant.get(tenant, 0)
        num_tenants = len(self._of_tenant) + (not own)
        share = self._supply.window_tokens / num_tenants
        return num_tenants > 1 and own + tokens <= LITTLE * share
