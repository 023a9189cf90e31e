"""A standing pull on a JetStream consumer, and the leases that come from it.

The worker grants credit; this file keeps requests at the broker for it, so that a message leaves the moment it is
published. A request asks for a number of messages and ends when they came or when it expires, which the broker tells
together with how many did not come. Never is more asked for than there is credit. What the worker takes beside it is
asked for once (take.py). It must not know how a consumer is made, nor what a message means.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable

import msgspec

from shoal.errors import ShoalError
from shoal.queue.connection import Connection, ConnectionLost, Subscription
from shoal.queue.nats_client import Message
from shoal.queue.rumour import LaneRumour, Rumours
from shoal.queue.take import Taking

__all__ = ["JetStreamLease", "JetStreamPull"]

_GRACE_S = 2.0
_CALM_S = 0.1
"""A pull from which nothing came for so long has nothing on its way."""
_HEARTBEATS_PER_REQUEST = 6
_MAX_BACKOFF_S = 2.0

_log = logging.getLogger(__name__)


class JetStreamLease:
    """A `Lease`. Its answers are sent without waiting; one that is lost lets the lease run out."""

    __slots__ = (
        "_connection",
        "_is_answered",
        "_on_nak",
        "_reply",
        "body",
        "delivery_count",
        "num_waiting",
        "published_at",
    )

    def __init__(self, connection: Connection, message: Message, on_nak: Callable[[float], None]) -> None:
        self._connection = connection
        self._on_nak = on_nak
        self._reply = message.reply
        self._is_answered = False
        self.body: bytes = message.data
        # $JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<sequence>.<nanoseconds>.<pending>; a longer form has the
        # domain and the account before <stream>, and may have one word more at the end.
        words = message.reply.split(".")
        first = 4 if len(words) == 9 else 6
        self.delivery_count = int(words[first])
        self.published_at = int(words[first + 3]) / 1e9
        self.num_waiting = int(words[first + 4])  # messages behind this one in the lane

    def ack(self) -> None:
        self._answer(b"+ACK")

    def term(self) -> None:
        self._answer(b"+TERM")

    def nak(self, delay_s: float = 0.0) -> None:
        if not self._is_answered:
            self._answer(b'-NAK {"delay":%d}' % int(delay_s * 1e9) if delay_s > 0 else b"-NAK")
            self._on_nak(self.published_at)

    def in_progress(self) -> None:
        if not self._is_answered:
            self._send(b"+WPI")

    def _answer(self, answer: bytes) -> None:
        if not self._is_answered:
            self._is_answered = True
            self._send(answer)

    def _send(self, answer: bytes) -> None:
        try:
            self._connection.send(self._reply, answer)
        except ConnectionLost:
            _log.debug("The answer to a lease is lost with the connection; the message comes again.")


class JetStreamPull:
    """A `Pull`.

    Args:
        connection: what it runs over.
        ensure_consumer: makes stream and consumer where they are missing, and gives the subject of pull requests.
        on_lease: called for each message.
        on_waiting: see `Queue.pull`.
        rumours, subject: where it hears of its lane, and tells what it leaves.
        expiry_s: says after how long the broker shall end a request; it is asked anew then.
        timeout_s: for the steps of attaching.
    """

    def __init__(
        self,
        connection: Connection,
        ensure_consumer: Callable[[], Awaitable[str]],
        on_lease: Callable[[JetStreamLease], None],
        on_waiting: Callable[[], None],
        rumours: Rumours,
        subject: str,
        expiry_s: Callable[[], float],
        timeout_s: float,
    ) -> None:
        self.credit = 0
        self._connection = connection
        self._ensure_consumer = ensure_consumer
        self._on_lease = on_lease
        self._on_waiting = on_waiting
        self._rumours = rumours
        self._subject = subject
        self._rumour = LaneRumour(self._heard)
        rumours.lanes.setdefault(subject, set()).add(self._rumour)
        self._taking = Taking(connection, self._took, self._take_ended, timeout_s)
        self._choose_expiry_s = expiry_s
        self._expiry_s = self._heartbeat_s = 0.0
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._counter = itertools.count()
        self._inbox: Subscription | None = None
        self._inbox_subject = ""
        self._next_subject = ""
        self._asked = 0  # messages that requests at the broker may still bring
        self._asked_at = 0.0
        self._heard_at = 0.0
        self._came_at = 0.0
        self._num_failures = 0
        self._is_scheduled = False
        self.is_closed = False
        self._attaching: asyncio.Task[None] | None = None

    def grant(self, num_messages: int) -> None:
        self.credit += num_messages
        self._schedule()

    @property
    def waiting_since(self) -> float:
        return math.inf if self.credit > 0 or not self._next_subject else self._rumour.since(time.time())

    def take(self, num_messages: int, on_end: Callable[[], None]) -> None:
        if self.is_closed:
            on_end()
        else:
            self._taking.start(self._next_subject, num_messages, on_end)

    async def close(self) -> None:
        if not self.is_closed:
            self._forget_rumour()
        self.is_closed = True
        self.credit = 0
        if self._attaching is not None:
            await asyncio.wait([self._attaching])
        await self._flow_ends()
        await self._detach()
        await self._taking.close()

    async def _flow_ends(self) -> None:
        """Wait until no message comes any more: one that the broker is about to send when we hang up is lost.

        It would come to somebody else only when its lease has run out.
        """
        end = self._loop.time() + self._timeout_s
        while self._asked > 0 and self._connection.is_up and self._loop.time() < end:
            left_s = self._came_at + _CALM_S - self._loop.time()
            if left_s <= 0:
                return
            await asyncio.sleep(left_s)

    def detach(self) -> None:
        """Forget what was asked for: the connection that it was asked on is gone."""
        self._asked = 0
        self._next_subject = ""
        self._taking.abandon()

    async def attach(self) -> None:
        """Make an inbox and ask for all credit there; what fails is tried again by itself, this only waits a while."""
        self._start_over()
        if self._attaching is not None:
            await asyncio.wait([self._attaching], timeout=self._timeout_s)

    def check(self) -> None:
        """Called now and then: start over if nothing is asked for, or the broker owes a sign of life."""
        self._taking.check()
        if not self._next_subject:
            self._start_over()
        elif self._asked > 0:
            now = self._loop.time()
            is_silent = now - self._heard_at > 3 * self._heartbeat_s + _GRACE_S
            has_expired = now - self._asked_at > self._expiry_s + _GRACE_S
            if is_silent or has_expired:
                _log.warning("The broker is silent about a pull; it starts over.")
                self._start_over()

    def check_stream(self, incarnation: str) -> None:
        """Called with the stream that there is now: start over if it is not the one that the consumer was made in."""
        if self._next_subject and not self._next_subject.endswith(f"-{incarnation}"):
            _log.warning("The stream of a pull was made anew; it starts over.")
            self._start_over()

    def _start_over(self) -> None:
        if self._attaching is None and self._connection.is_up and not self.is_closed:
            self._attaching = self._connection.spawn(self._attach())

    async def _attach(self) -> None:
        try:
            while self._connection.is_up and not self.is_closed:
                try:
                    await self._attach_once()
                    return
                except (ConnectionLost, TimeoutError, ShoalError) as error:
                    self._num_failures += 1
                    _log.warning("A pull cannot start and is tried again: %r", error)
        finally:
            self._attaching = None

    async def _attach_once(self) -> None:
        await self._detach()
        if self._num_failures > 0:
            longest_s = min(0.05 * 2 ** min(self._num_failures, 10), _MAX_BACKOFF_S)
            await asyncio.sleep(random.uniform(longest_s / 2, longest_s))  # noqa: S311
        subject = await self._ensure_consumer()
        self._inbox_subject = self._connection.new_inbox()
        self._inbox = await self._connection.subscribe(f"{self._inbox_subject}.*", self._receive, self._timeout_s)
        if not self._connection.is_up:
            raise ConnectionLost
        self._next_subject = subject
        self._schedule()

    async def _detach(self) -> None:
        self.detach()
        inbox, self._inbox = self._inbox, None
        if inbox is not None:
            await inbox.close()

    def _schedule(self) -> None:
        """Ask at the end of this turn of the loop, once for all that was granted in it."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._ask)

    def _ask(self) -> None:
        self._is_scheduled = False
        missing = self.credit - self._asked
        # A request costs the broker and us a message: renew when half of the credit is used up, not at each delivery.
        if missing <= 0 or missing < self._asked or not self._next_subject:
            return
        self._expiry_s = self._choose_expiry_s()
        self._heartbeat_s = self._expiry_s / _HEARTBEATS_PER_REQUEST
        request = {
            "batch": missing,
            "expires": int(self._expiry_s * 1e9),
            "idle_heartbeat": int(self._heartbeat_s * 1e9),
        }
        try:
            self._connection.send(
                self._next_subject, msgspec.json.encode(request), f"{self._inbox_subject}.{next(self._counter)}"
            )
        except ConnectionLost:
            return
        self._asked += missing
        self._asked_at = self._heard_at = self._loop.time()

    def _receive(self, message: Message) -> None:
        self._heard_at = self._loop.time()
        if not message.reply.startswith("$JS.ACK."):
            self._receive_status(message)
            return
        lease = self._lease(message)
        self._came_at = self._heard_at
        self._asked = max(0, self._asked - 1)
        if self.is_closed:
            lease.nak()
            return
        self._num_failures = 0
        self.credit -= 1
        if self.credit - self._asked >= self._asked:
            self._schedule()
        self._rumour.left(lease.published_at if lease.num_waiting else math.inf, time.time())
        self._on_lease(lease)
        if lease.num_waiting:
            self._heard()

    def _lease(self, message: Message) -> JetStreamLease:
        return JetStreamLease(self._connection, message, self._handed_back)

    def _handed_back(self, published_at: float) -> None:
        """A message waits again: nobody else tells the others, and ourselves."""
        self._rumours.published(self._subject)
        self._rumour.published(published_at)

    def _heard(self) -> None:
        if self.credit <= 0:  # with credit, it comes by itself
            self._on_waiting()

    def _took(self, message: Message) -> float:
        """A message that was taken is here; returns when it was published."""
        lease = self._lease(message)
        if self.is_closed:
            lease.nak()
        else:
            self._on_lease(lease)
        return lease.published_at

    def _take_ended(self, last_published_at: float, *, is_short: bool) -> None:
        """See `Taking`: what is left has waited since the last message that came, if anything is left."""
        now = time.time()
        since = math.inf if is_short else last_published_at
        self._rumour.left(since, now)
        self._rumours.left(self._subject, since)
        if is_short and last_published_at:
            self._rumour.doubt(now)

    def _forget_rumour(self) -> None:
        rumours = self._rumours.lanes[self._subject]
        rumours.discard(self._rumour)
        if not rumours:
            del self._rumours.lanes[self._subject]

    def _receive_status(self, message: Message) -> None:
        headers = message.headers or {}
        status = headers.get("Status", "")
        if status == "100" or self.is_closed:
            return
        missing = headers.get("Nats-Pending-Messages", "")
        if status in ("404", "408") and missing.isdigit():
            self._num_failures = 0
            self._asked = max(0, self._asked - int(missing))
            self._schedule()
            return
        self._num_failures += 1
        _log.info("A pull starts over, because the broker says: %s %s", status, headers.get("Description", ""))
        self._start_over()
