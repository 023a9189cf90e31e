"""What is known from afar of the lanes of a stream: which of them hold messages, and since when.

Who publishes says which lanes it published to; who takes says what was left. Both tell all that pull, over a plain
message now and then, never one a message. Nothing depends on it but the order in which lanes are taken from: what is
lost, late or wrong costs an empty take, or leaves a message to the next credit. It must not know what pulls or messages
are.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable

import msgspec

from shoal.queue.alarm import Alarm

__all__ = ["NOTICE_S", "LaneRumour", "Rumours"]

NOTICE_S = 0.03
"""So long, publishes are gathered for a notice. What a take left is told at once if the last notice is so long ago."""

PATIENCE_S = 0.001
"""Each notice heard puts our next one off by so much: about 1,000 a second reach everybody, however many there are."""

MOST_LANES = 1000
"""A notice tells of no more publishes, and of no more takes."""

DOUBT_S = 2.5 * NOTICE_S
"""So long after a take that found less than it asked for, a lane may hold messages of which no notice has come yet."""

_log = logging.getLogger(__name__)


class _Notice(msgspec.Struct, array_like=True):
    """What one side did since its last notice.

    Attributes:
        sender: tells our own from others'.
        published: by the subject of a lane, seconds since the first publish of which this tells.
        left: by the subject of a lane, seconds that what a take left has waited; below zero if it left nothing.
    """

    sender: str
    published: dict[str, float]
    left: dict[str, float]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Notice).decode


class LaneRumour:
    """What one pull believes of its lane. Times are Unix times.

    Args:
        on_waiting: called at each word of messages that wait.
    """

    __slots__ = ("_doubted_until", "_emptied_at", "_since", "on_waiting")

    def __init__(self, on_waiting: Callable[[], None]) -> None:
        self.on_waiting = on_waiting
        self._since = math.inf
        self._emptied_at = -math.inf
        self._doubted_until = -math.inf

    def since(self, now: float) -> float:
        """Since when a message may wait; infinite if none is known to."""
        return self._emptied_at if self._since == math.inf and now < self._doubted_until else self._since

    def published(self, since: float) -> None:
        """Somebody published; what was there before the lane was emptied is not there any more."""
        self._since = min(self._since, max(since, self._emptied_at))
        self.on_waiting()

    def left(self, since: float, now: float) -> None:
        """Somebody took, and what is left waits since then; infinite if nothing is."""
        self._since = since
        if since == math.inf:
            self._emptied_at = now

    def doubt(self, now: float) -> None:
        """We took some, and less than we asked for: more may be on its way."""
        self._doubted_until = now + DOUBT_S


class Rumours:
    """Tells the others of a pool, and hears them.

    Args:
        send: sends a notice to all, ourselves included.
        sender: a word of our own.

    Attributes:
        lanes: the rumours that are kept here, by the subject of their lane.
    """

    def __init__(self, send: Callable[[bytes], None], sender: str) -> None:
        self.lanes: dict[str, set[LaneRumour]] = {}
        self._send = send
        self._sender = sender
        self._loop = asyncio.get_running_loop()
        self._published: dict[str, float] = {}
        self._left: dict[str, float] = {}
        self._alarm = Alarm(self._send_now)
        self._next_at = 0.0

    def published(self, subject: str) -> None:
        """We put a message into a lane."""
        if subject not in self._published and len(self._published) < MOST_LANES:
            self._published[subject] = time.time()
            self._send_at(self._loop.time() + NOTICE_S)

    def left(self, subject: str, since: float) -> None:
        """We took from a lane, and what is left waits since then."""
        if len(self._left) < MOST_LANES:
            self._left[subject] = since
        self._send_at(self._loop.time())

    def hear(self, body: bytes) -> None:
        """A notice came."""
        try:
            notice = _decode(body)
        except msgspec.MsgspecError:
            _log.exception("What should be a notice of messages that wait is none.")
            return
        if notice.sender == self._sender:
            return
        self._next_at += PATIENCE_S
        now = time.time()
        for subject, age_s in notice.left.items():
            for rumour in self.lanes.get(subject, ()):
                rumour.left(now - age_s if age_s >= 0 else math.inf, now)
        for subject, age_s in notice.published.items():
            for rumour in self.lanes.get(subject, ()):
                rumour.published(now - age_s)

    def close(self) -> None:
        """Tell nothing more."""
        self._alarm.clear()

    def _send_at(self, when: float) -> None:
        self._alarm.set(max(when, self._next_at))

    def _send_now(self) -> None:
        self._next_at = self._loop.time() + NOTICE_S
        now = time.time()
        published = {subject: max(0.0, now - since) for subject, since in self._published.items()}
        left = {subject: max(0.0, now - since) if since < math.inf else -1.0 for subject, since in self._left.items()}
        self._published.clear()
        self._left.clear()
        self._send(_encode(_Notice(self._sender, published, left)))
