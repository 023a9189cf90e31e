"""Asks a JetStream consumer once for messages that wait now: the broker gives what it has and says that it is done.

It must not know leases, lanes or what a standing pull has asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from typing import Protocol

import msgspec

from shoal.queue.connection import Connection, ConnectionLost, Subscription
from shoal.queue.nats_client import Message

__all__ = ["Taking"]


class _OnEnd(Protocol):
    def __call__(self, last_published_at: float, *, is_short: bool) -> None: ...


class Taking:
    """The takes of one pull, one after the other. Its inbox is made at the first.

    Args:
        on_message: called for each message; returns its time of publishing.
        on_answered: called when the broker has answered a take, with that of the last message (0 for none), and whether
            fewer came than were asked for; before the `on_end` of the take, which is called even without an answer.
        timeout_s: a take that the broker does not answer ends by then.
    """

    def __init__(
        self, connection: Connection, on_message: Callable[[Message], float], on_answered: _OnEnd, timeout_s: float
    ) -> None:
        self._connection = connection
        self._on_message = on_message
        self._on_answered = on_answered
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._inbox: Subscription | None = None
        self._inbox_subject = connection.new_inbox()
        self._opening: asyncio.Task[None] | None = None
        self._reply = ""
        self._missing = 0
        self._last_published_at = 0.0
        self._ends_at = 0.0
        self._on_end: Callable[[], None] | None = None
        self._has_ended = asyncio.Event()
        self._has_ended.set()

    def start(self, subject: str, num_messages: int, on_end: Callable[[], None]) -> None:
        """Ask at `subject`; an empty one cannot be asked."""
        self._on_end = on_end
        self._has_ended.clear()
        self._missing = num_messages
        self._last_published_at = 0.0
        self._ends_at = self._loop.time() + self._timeout_s
        if self._inbox is None and self._opening is None:
            self._opening = self._connection.spawn(self._open(subject))
        elif self._opening is None:
            self._ask(subject)

    def check(self) -> None:
        """Called now and then: end a take that the broker owes an answer."""
        if self._on_end is not None and self._loop.time() > self._ends_at:
            self.abandon()

    def abandon(self) -> None:
        """End the take, if there is one; what still comes of it is a message like any other."""
        self._reply = ""
        self._has_ended.set()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    async def close(self) -> None:
        """Let the take end: the broker drops what it was about to send to an inbox that has just gone."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._connection.is_up:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_ended.wait(), self._timeout_s)
        inbox, self._inbox = self._inbox, None
        if inbox is not None:
            await inbox.close()
        self.abandon()

    async def _open(self, subject: str) -> None:
        self._inbox = await self._connection.subscribe(f"{self._inbox_subject}.*", self._receive, self._timeout_s)
        self._opening = None
        if self._on_end is not None:
            self._ask(subject)

    def _ask(self, subject: str) -> None:
        self._reply = f"{self._inbox_subject}.{next(self._numbers)}"
        request = msgspec.json.encode({"batch": self._missing, "no_wait": True})
        try:
            if not subject:
                raise ConnectionLost
            self._connection.send(subject, request, self._reply)
        except ConnectionLost:
            self._loop.call_soon(self.abandon)

    def _receive(self, message: Message) -> None:
        if message.reply.startswith("$JS.ACK."):
            published_at = self._on_message(message)
            if self._reply:
                self._last_published_at = published_at
                self._missing -= 1
                if not self._missing:
                    self._answered()
        elif message.subject == self._reply:
            self._answered()

    def _answered(self) -> None:
        self._on_answered(self._last_published_at, is_short=self._missing > 0)
        self.abandon()
