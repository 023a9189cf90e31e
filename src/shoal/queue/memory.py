"""The queue inside one process: what `shoal serve` runs on.

It behaves as JetStream does in every way that the contract names, without a copy, a task or a timer a message: a
delivery is one `call_soon`, all leases share one timer. It must not know what the bodies mean.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from shoal.errors import NotReady, Overloaded, ShoalError, TooLarge
from shoal.queue.base import Address
from shoal.queue.dead import Buried, DeadBox
from shoal.types import Lane

__all__ = ["MemoryQueue"]

_DEDUP_WINDOW_S = 120.0
_MAX_REMEMBERED_IDS = 500_000
_MAX_MESSAGE_BYTES = 8 * 1024 * 1024 - 64 * 1024

_log = logging.getLogger(__name__)


class _Message:
    """One message and who has it: it waits in its lane, or is on loan (`lease`), or waits out a nak's delay."""

    __slots__ = ("body", "delivery_count", "is_done", "lane", "lease", "published_at")

    def __init__(self, lane: _Lane, body: bytes) -> None:
        self.lane = lane
        self.body = body
        self.published_at = time.time()
        self.delivery_count = 0
        self.lease: MemoryLease | None = None
        self.is_done = False


class MemoryLease:
    """A `Lease`. An ack or term that comes after the lease ran out still ends the message, as in JetStream."""

    __slots__ = ("delivery_count", "expires_at", "is_answered", "message")

    def __init__(self, message: _Message, expires_at: float) -> None:
        self.message = message
        self.delivery_count = message.delivery_count
        self.expires_at = expires_at
        self.is_answered = False

    @property
    def body(self) -> bytes:
        return self.message.body

    @property
    def published_at(self) -> float:
        return self.message.published_at

    def ack(self) -> None:
        if not self.is_answered:
            self.is_answered = True
            self.message.lane.queue.forget(self.message)

    term = ack

    def nak(self, delay_s: float = 0.0) -> None:
        if not self.is_answered and self.message.lease is self:
            self.is_answered = True
            self.message.lane.queue.hand_back(self.message, delay_s)

    def in_progress(self) -> None:
        if self.message.lease is self:
            self.message.lane.queue.renew(self)


class MemoryPull:
    """A `Pull`."""

    def __init__(self, lane: _Lane, on_lease: Callable[[MemoryLease], None], on_waiting: Callable[[], None]) -> None:
        self._lane = lane
        self.on_lease = on_lease
        self.on_waiting = on_waiting
        self.credit = 0

    def grant(self, num_messages: int) -> None:
        self.credit += num_messages
        self._lane.schedule()

    @property
    def waiting_since(self) -> float:
        line = self._lane.again or self._lane.waiting
        return line[0].published_at if line else math.inf

    def take(self, num_messages: int, on_end: Callable[[], None]) -> None:
        if self in self._lane.pulls:
            self._lane.give(self, num_messages)
        on_end()

    async def close(self) -> None:
        self.credit = 0
        if self in self._lane.pulls:
            self._lane.pulls.remove(self)


class MemoryListener:
    """A `Listener`."""

    def __init__(self, queue: MemoryQueue, address: Address, on_message: Callable[[bytes], None]) -> None:
        self._queue = queue
        self._address = address
        self.on_message = on_message

    async def close(self) -> None:
        self._queue.unlisten(self._address, self)


class _Lane:
    """What waits, and who pulls: pulls with credit take turns."""

    __slots__ = ("_is_scheduled", "again", "held", "pulls", "queue", "waiting")

    def __init__(self, queue: MemoryQueue) -> None:
        self.queue = queue
        self.waiting: deque[_Message] = deque()
        self.again: deque[_Message] = deque()  # to be redelivered: goes first
        self.held: dict[_Message, None] = {}
        self.pulls: deque[MemoryPull] = deque()
        self._is_scheduled = False

    def schedule(self) -> None:
        if self.pulls and not self._is_scheduled and (self.waiting or self.again):
            self._is_scheduled = True
            self.queue.loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._is_scheduled = False
        num_broke = 0
        while (self.waiting or self.again) and num_broke < len(self.pulls):
            pull = self.pulls[0]
            self.pulls.rotate(-1)
            if pull.credit <= 0:
                num_broke += 1
                continue
            num_broke = 0
            pull.credit -= 1
            self.give(pull, 1)
        if self.waiting or self.again:
            for pull in self.pulls:
                pull.on_waiting()

    def give(self, pull: MemoryPull, most: int) -> None:
        """Lend a pull up to so many of the messages that wait."""
        for _ in range(min(most, len(self.again) + len(self.waiting))):
            lease = self.queue.lend((self.again or self.waiting).popleft())
            try:
                pull.on_lease(lease)
            except Exception:
                _log.exception("A callback of the queue raised; the message comes again when its lease runs out.")


class MemoryQueue:
    """A `Queue` for gateway and worker in one process, on one event loop.

    Args:
        lease_s: seconds after which an unanswered lease is delivered again.
        max_bytes: bodies held at once; `publish` raises `Overloaded` beyond.
    """

    def __init__(self, *, lease_s: float = 10.0, max_bytes: int = 256 * 1024 * 1024) -> None:
        self._lease_s = lease_s
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._lanes: dict[Lane, _Lane] = {}
        self._loans: OrderedDict[MemoryLease, None] = OrderedDict()  # the first runs out first
        self._expiry: asyncio.TimerHandle | None = None
        self._delays: set[asyncio.TimerHandle] = set()
        self._published_ids: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._dead: dict[str, DeadBox] = {}
        self._listeners: dict[Address, list[MemoryListener]] = {}
        self._is_open = True

    @functools.cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def publish(self, lane: Lane, message_id: str, body: bytes) -> None:
        self._put(lane, message_id, body)

    def post(self, lane: Lane, message_id: str, body: bytes, on_failure: Callable[[Exception], None]) -> None:
        try:
            self._put(lane, message_id, body)
        except ShoalError as error:
            on_failure(error)

    async def pull(
        self, lane: Lane, on_lease: Callable[[MemoryLease], None], on_waiting: Callable[[], None] = lambda: None
    ) -> MemoryPull:
        place = self._lane(lane)
        pull = MemoryPull(place, on_lease, on_waiting)
        place.pulls.append(pull)
        return pull

    async def purge(self, lane: Lane) -> int:
        place = self._lane(lane)
        dropped = list(place.held)
        place.waiting.clear()
        place.again.clear()
        for message in dropped:
            self.forget(message)
        return len(dropped)

    async def depth(self, lane: Lane) -> int:
        place = self._lane(lane)
        return len(place.waiting) + len(place.again)

    async def bury(self, pool: str, body: bytes) -> None:
        self._check_size(body)
        self._dead.setdefault(pool, DeadBox()).put(body)

    async def buried(self, pool: str) -> list[Buried]:
        return self._dead[pool].all() if pool in self._dead else []

    async def unbury(self, pool: str, number: int | None = None) -> int:
        return self._dead[pool].remove(number) if pool in self._dead else 0

    def send(self, address: Address, body: bytes) -> None:
        self._check_size(body)
        for listener in self._listeners.get(address, ()):
            self.loop.call_soon(self._hear, address, listener, body)

    async def listen(self, address: Address, on_message: Callable[[bytes], None]) -> MemoryListener:
        listener = MemoryListener(self, address, on_message)
        self._listeners.setdefault(address, []).append(listener)
        return listener

    @property
    def max_message_bytes(self) -> int:
        return _MAX_MESSAGE_BYTES

    @property
    def is_connected(self) -> bool:
        return self._is_open

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        """Nothing to do: this queue lives and dies with its process."""

    async def close(self) -> None:
        self._is_open = False
        for timer in (*self._delays, *([self._expiry] if self._expiry else [])):
            timer.cancel()
        self._listeners.clear()
        for place in self._lanes.values():
            place.pulls.clear()

    def lend(self, message: _Message) -> MemoryLease:
        """Start a lease on a message that was just taken from its lane."""
        message.delivery_count += 1
        lease = message.lease = MemoryLease(message, self.loop.time() + self._lease_s)
        self._loans[lease] = None
        if self._expiry is None:
            self._expiry = self.loop.call_at(lease.expires_at, self._expire)
        return lease

    def forget(self, message: _Message) -> None:
        """End a message wherever it is; the second time does nothing."""
        if message.is_done:
            return
        message.is_done = True
        del message.lane.held[message]
        self._held_bytes -= len(message.body)
        if message.lease is not None:
            self._end_lease(message)
            return
        for line in (message.lane.again, message.lane.waiting):
            if message in line:
                line.remove(message)

    def hand_back(self, message: _Message, delay_s: float) -> None:
        """End the lease of a message and let it wait again, ahead of new ones, after the delay."""
        self._end_lease(message)
        if delay_s <= 0:
            self._wait_again(message)
            return

        def is_due() -> None:
            self._delays.discard(timer)
            self._wait_again(message)

        timer = self.loop.call_later(delay_s, is_due)
        self._delays.add(timer)

    def renew(self, lease: MemoryLease) -> None:
        """Start the time of a lease anew."""
        lease.expires_at = self.loop.time() + self._lease_s
        self._loans.move_to_end(lease)

    def unlisten(self, address: Address, listener: MemoryListener) -> None:
        """Take a listener away; messages already on their way to it are dropped."""
        listeners = self._listeners.get(address, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._listeners.pop(address, None)

    def _put(self, lane: Lane, message_id: str, body: bytes) -> None:
        if not self._is_open:
            raise NotReady("The queue is closed.")
        self._check_size(body)
        if self._held_bytes + len(body) > self._max_bytes:
            raise Overloaded(f"The queue holds {self._held_bytes} of at most {self._max_bytes} bytes.", retry_after_s=1)
        if self._is_duplicate(lane.pool, message_id):
            return
        place = self._lane(lane)
        message = _Message(place, body)
        place.held[message] = None
        place.waiting.append(message)
        self._held_bytes += len(body)
        place.schedule()

    def _lane(self, lane: Lane) -> _Lane:
        place = self._lanes.get(lane)
        if place is None:
            place = self._lanes[lane] = _Lane(self)
        return place

    def _check_size(self, body: bytes) -> None:
        if len(body) > _MAX_MESSAGE_BYTES:
            raise TooLarge(f"A message of {len(body)} bytes is beyond the queue's limit of {_MAX_MESSAGE_BYTES} bytes.")

    def _is_duplicate(self, pool: str, message_id: str) -> bool:
        now = self.loop.time()
        ids = self._published_ids
        while ids and (len(ids) >= _MAX_REMEMBERED_IDS or next(iter(ids.values())) <= now - _DEDUP_WINDOW_S):
            ids.popitem(last=False)
        if (pool, message_id) in ids:
            return True
        ids[pool, message_id] = now
        return False

    def _end_lease(self, message: _Message) -> None:
        if message.lease is not None:
            del self._loans[message.lease]
            message.lease = None

    def _wait_again(self, message: _Message) -> None:
        if not message.is_done:
            message.lane.again.append(message)
            message.lane.schedule()

    def _expire(self) -> None:
        self._expiry = None
        now = self.loop.time()
        while self._loans:
            lease = next(iter(self._loans))
            if lease.expires_at > now:
                self._expiry = self.loop.call_at(lease.expires_at, self._expire)
                return
            self.hand_back(lease.message, 0.0)

    def _hear(self, address: Address, listener: MemoryListener, body: bytes) -> None:
        if listener not in self._listeners.get(address, ()):
            return
        try:
            listener.on_message(body)
        except Exception:
            _log.exception("A listener of %s raised.", address)
