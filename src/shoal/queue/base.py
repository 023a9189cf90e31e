"""What a queue is: lanes of leased messages, and plain addressed messages beside them.

Two implementations, `memory` and `jetstream`, pass the same contract tests (tests/queue). A queue carries opaque bytes:
it knows lanes and message ids, never chunks or models. Callbacks run on the event loop and must not block or raise.

Delivery is at least once. A lease that is neither acked, nak'd nor termed within `lease_s` of its delivery (or of the
last `in_progress`) is delivered again, to whoever has credit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from shoal.queue.dead import Buried
from shoal.types import Lane

__all__ = ["Address", "Buried", "Lease", "Listener", "Pull", "Queue"]

Address = str
"""Where plain messages go: dot-separated words, such as `reply.8f3a` or `status.default`."""


class Lease(Protocol):
    """One message on loan to this worker. Exactly one of `ack`, `nak`, `term` ends it; later calls do nothing."""

    @property
    def body(self) -> bytes: ...

    @property
    def published_at(self) -> float:
        """Unix time in seconds, by the queue's clock."""
        ...

    @property
    def delivery_count(self) -> int:
        """1 at the first delivery."""
        ...

    def ack(self) -> None:
        """Done: the queue forgets the message."""
        ...

    def nak(self, delay_s: float = 0.0) -> None:
        """Not done: deliver it again, to anyone, after the delay."""
        ...

    def term(self) -> None:
        """Never deliver it again."""
        ...

    def in_progress(self) -> None:
        """Still at it: the lease starts anew."""
        ...


class Pull(Protocol):
    """How a worker draws from a lane: with credit, messages come as they are published; `take` asks for what waits."""

    @property
    def credit(self) -> int:
        """How many more messages may come."""
        ...

    def grant(self, num_messages: int) -> None:
        """Raise the credit by so many messages; each delivery that was not taken lowers it by one."""
        ...

    @property
    def waiting_since(self) -> float:
        """Unix time since when a message may have waited for somebody to take it; infinite if none is known to.

        Over a network this is a rumour: what it says may be gone, or come some milliseconds late. A message that no
        rumour tells of comes to the next credit.
        """
        ...

    def take(self, num_messages: int, on_end: Callable[[], None]) -> None:
        """Take up to so many of the messages that wait now, beside the credit; never waits for more to be published.

        They come as all do, and then `on_end` is called once, whatever happens; until then there is no further take.
        """
        ...

    async def close(self) -> None:
        """No further delivery; open leases stay valid."""
        ...


class Listener(Protocol):
    """A subscription to an address."""

    async def close(self) -> None: ...


class Queue(Protocol):
    """The queue between gateways and workers."""

    async def publish(self, lane: Lane, message_id: str, body: bytes) -> None:
        """Put a message at the end of a lane and return when the queue holds it.

        A message with an id that was published to the pool in the last two minutes is dropped silently. Any number
        of publishes may be awaited at once; beyond a bounded window they wait for one another.

        Raises:
            NotReady: the queue cannot be reached within the time-out.
            Overloaded: the queue refuses more messages.
            TooLarge: the body is longer than `max_message_bytes`.
        """
        ...

    def post(self, lane: Lane, message_id: str, body: bytes, on_failure: Callable[[Exception], None]) -> None:
        """As `publish`, without waiting: `on_failure` gets what it would raise, now or later."""
        ...

    async def pull(
        self, lane: Lane, on_lease: Callable[[Lease], None], on_waiting: Callable[[], None] = lambda: None
    ) -> Pull:
        """Open a standing pull, with credit 0.

        Args:
            on_waiting: called when it is known that messages wait which no credit brought, not necessarily each time.
        """
        ...

    async def purge(self, lane: Lane) -> int:
        """Drop all that a lane holds; returns how many. What is on loan goes too: it is not delivered again."""
        ...

    async def depth(self, lane: Lane) -> int:
        """Messages waiting in a lane, those on loan not counted.

        A message that was handed back may count as on loan until it is delivered again.
        """
        ...

    async def bury(self, pool: str, body: bytes) -> None:
        """Put a message among a pool's dead letters: up to 1,000, 64 MiB and seven days of them, the oldest go first.

        Raises:
            NotReady: the queue cannot be reached within the time-out.
            TooLarge: the body is longer than `max_message_bytes`.
        """
        ...

    async def buried(self, pool: str) -> list[Buried]:
        """A pool's dead letters, oldest first.

        Raises:
            NotReady: the queue cannot be reached within the time-out.
        """
        ...

    async def unbury(self, pool: str, number: int | None = None) -> int:
        """Remove a dead letter, or all of them; returns how many.

        Raises:
            NotReady: the queue cannot be reached within the time-out.
        """
        ...

    def send(self, address: Address, body: bytes) -> None:
        """Give a plain message to all who listen now; nobody listening is no error. Does not wait.

        Raises:
            TooLarge: the body is longer than `max_message_bytes`.
        """
        ...

    async def listen(self, address: Address, on_message: Callable[[bytes], None]) -> Listener:
        """Hear plain messages to an address."""
        ...

    @property
    def max_message_bytes(self) -> int:
        """Largest body that `publish` and `send` take."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether a publish could succeed now."""
        ...

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        """Call back whenever a lost connection is back; what was published, or the reply to it, may then be gone.

        Who publishes again takes new message ids: a queue that outlived the connection still knows the old ones.
        """
        ...

    async def close(self) -> None:
        """Flush what was sent and leave."""
        ...
