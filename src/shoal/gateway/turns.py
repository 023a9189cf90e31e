"""Whose turn it is: the policy, pure. It gets a time and how much room there is, and returns the chunks that go.

A lane waits while a higher one has work, but earns an eighth of what goes past it, so that nothing starves. In a lane,
tenants take turns by deficit round robin in tokens; in a tenant, its requests do, by the same. So a tenant that floods
takes no more than its part, and a long request holds no short one. This file knows no queue, worker or HTTP.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from shoal.types import Priority

__all__ = ["AGEING", "LANES", "TURN_TOKENS", "Part", "Request", "Turns"]

LANES: tuple[Priority, ...] = ("interactive", "default", "bulk")
"""By rank, the most urgent first."""

TURN_TOKENS = 256
"""What one gets a round: small beside a batch, so that who comes anew waits little for the others' turns."""

AGEING = 8
"""A lane that is passed over earns one of so many tokens."""


class Request(Protocol):
    """What the policy looks at.

    Attributes:
        tenant: who asks.
        deadline: time after which nobody waits for it.
        costs: tokens of each of its chunks, at least 1.
    """

    @property
    def tenant(self) -> str: ...
    @property
    def deadline(self) -> float: ...
    @property
    def costs(self) -> Sequence[int]: ...


RequestT = TypeVar("RequestT", bound=Request)


class _Member(Protocol):
    """One that takes turns: what it has saved, how much it has waiting, and what its next chunk costs."""

    deficit: int
    tokens: int

    @property
    def cost(self) -> int: ...
    def leave(self) -> None: ...


MemberT = TypeVar("MemberT", bound=_Member)


class _Ring(Generic[MemberT]):
    """Deficit round robin. A member that has nothing left falls out when its turn comes."""

    __slots__ = ("_members",)

    def __init__(self) -> None:
        self._members: deque[MemberT] = deque()

    def join(self, member: MemberT) -> None:
        member.deficit = TURN_TOKENS
        self._members.append(member)

    def head(self) -> MemberT:
        """Whose turn it is: the first that has saved what its next chunk costs. One of them must have something."""
        members, num_passed = self._members, 0
        while True:
            member = members[0]
            if not member.tokens:
                members.popleft().leave()
            elif member.deficit >= member.cost:
                return member
            elif num_passed < len(members):
                num_passed += 1
                member.deficit += TURN_TOKENS
                members.rotate(-1)
            else:
                self._skip_rounds()
                num_passed = 0

    def _skip_rounds(self) -> None:
        """Nobody could go in a whole round: give all at once the rounds that the nearest one lacks."""
        busy = [member for member in self._members if member.tokens]
        rounds = max(0, min(-((member.deficit - member.cost) // TURN_TOKENS) for member in busy))
        for member in busy:
            member.deficit += rounds * TURN_TOKENS


class Part(Generic[RequestT]):
    """The chunks of one request that wait, from `index` on.

    Attributes:
        tokens: what they cost in all.
    """

    __slots__ = ("deficit", "index", "request", "tenant", "tokens")

    def __init__(self, request: RequestT, tenant: _Tenant[RequestT]) -> None:
        self.request = request
        self.index = 0
        self.tenant = tenant
        self.tokens = sum(request.costs)
        self.deficit = 0

    @property
    def cost(self) -> int:
        return self.request.costs[self.index]

    def leave(self) -> None:
        """Nothing to do: it was counted out with its last chunk."""


class _Tenant(Generic[RequestT]):
    """One tenant's requests in one lane."""

    __slots__ = ("deficit", "lane", "name", "num_parts", "ring", "tokens")

    def __init__(self, name: str, lane: _Lane[RequestT]) -> None:
        self.name = name
        self.lane = lane
        self.ring: _Ring[Part[RequestT]] = _Ring()
        self.num_parts = 0
        self.tokens = 0
        self.deficit = 0

    @property
    def cost(self) -> int:
        return self.ring.head().cost

    def leave(self) -> None:
        del self.lane.tenants[self.name]

    def ahead(self, tokens: int) -> int:
        """Tokens of other requests of this tenant that go before the last of so many of a new one."""
        return min(self.tokens, self.num_parts * -(-tokens // TURN_TOKENS) * TURN_TOKENS)


class _Lane(Generic[RequestT]):
    """What waits in one lane.

    Attributes:
        earned: tokens that it may send in a higher lane's place.
    """

    __slots__ = ("earned", "rank", "ring", "tenants", "tokens")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.tenants: dict[str, _Tenant[RequestT]] = {}
        self.ring: _Ring[_Tenant[RequestT]] = _Ring()
        self.tokens = 0
        self.earned = 0.0

    def add(self, request: RequestT) -> Part[RequestT]:
        tenant = self.tenants.get(request.tenant)
        if tenant is None:
            tenant = self.tenants[request.tenant] = _Tenant(request.tenant, self)
            self.ring.join(tenant)
        part = Part(request, tenant)
        tenant.ring.join(part)
        tenant.num_parts += 1
        tenant.tokens += part.tokens
        self.tokens += part.tokens
        return part

    def head(self) -> Part[RequestT]:
        """The part whose chunk is next; something must wait."""
        return self.ring.head().ring.head()

    def count_out(self, part: Part[RequestT], tokens: int) -> None:
        """So many tokens of a part wait no more."""
        part.tokens -= tokens
        part.tenant.tokens -= tokens
        self.tokens -= tokens
        if not part.tokens:
            part.tenant.num_parts -= 1
        if not self.tokens:
            self.earned = 0.0


class Turns(Generic[RequestT]):
    """The chunks that wait for one model."""

    def __init__(self) -> None:
        self._lanes: list[_Lane[RequestT]] = [_Lane(rank) for rank in range(len(LANES))]

    @property
    def tokens(self) -> int:
        """What all that waits costs."""
        interactive, default, bulk = self._lanes
        return interactive.tokens + default.tokens + bulk.tokens

    def is_waiting(self, tenant: str) -> bool:
        """Whether a tenant has something waiting, in whatever lane."""
        return any(tenant in lane.tenants and lane.tenants[tenant].tokens for lane in self._lanes)

    def add(self, request: RequestT, rank: int) -> Part[RequestT]:
        """Let a request wait in the lane of that rank."""
        return self._lanes[rank].add(request)

    def drop(self, part: Part[RequestT]) -> None:
        """What is left of a part waits no more."""
        part.tenant.lane.count_out(part, part.tokens)

    def take(self, now: float, room_tokens: Sequence[float], most_tokens: float) -> list[tuple[RequestT, int, int]]:
        """Take out what goes now, as (request, index of the chunk, rank of the lane), first to go first.

        What is past its deadline is dropped. The last chunk of a lane may cost more than the room left.

        Args:
            room_tokens: for each lane; what goes in a lane takes of its room and of that of all lower ones.
            most_tokens: room that a lane may be short of and still send what it has earned by waiting.
        """
        room, going = list(room_tokens), []
        while (lane := self._next_lane(room, most_tokens)) is not None:
            part = lane.head()
            if part.request.deadline <= now:
                lane.count_out(part, part.tokens)
            else:
                going.append((part.request, part.index, lane.rank))
                self._send(lane, part, room)
        return going

    def _send(self, lane: _Lane[RequestT], part: Part[RequestT], room: list[float]) -> None:
        cost = part.cost
        part.index += 1
        part.deficit -= cost
        part.tenant.deficit -= cost
        lane.earned = max(0.0, lane.earned - cost)
        lane.count_out(part, cost)
        for rank in range(lane.rank, len(room)):
            room[rank] -= cost
            lower = self._lanes[rank]
            if rank > lane.rank and lower.tokens:
                lower.earned += cost / AGEING

    def _next_lane(self, room: list[float], most_tokens: float) -> _Lane[RequestT] | None:
        chosen = next((lane for lane in self._lanes if lane.tokens and room[lane.rank] > 0), None)
        if chosen is None:
            return None
        for lane in reversed(self._lanes[chosen.rank + 1 :]):
            if lane.earned and room[lane.rank] > -most_tokens and lane.earned >= lane.head().cost:
                return lane
        return chosen

    def ahead(self, rank: int, tenant: str, tokens: int) -> int:
        """Tokens of what waits here that would go before the last of so many more of a tenant in a lane."""
        lane = self._lanes[rank]
        own = lane.tenants.get(tenant)
        own_tokens = own.ahead(tokens) if own is not None else 0
        limit = own_tokens + tokens
        others = sum(min(other.tokens, limit) for other in lane.tenants.values() if other is not own)
        return sum(higher.tokens for higher in self._lanes[:rank]) + own_tokens + others
