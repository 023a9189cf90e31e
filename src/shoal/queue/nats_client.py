"""nats-py's client with a short way for messages in and out.

nats-py takes each message through half a dozen coroutines and checks that subjects and headers of ours pass by
construction. Here a message is a few plain calls, and its headers are read by who wants them. All else is nats-py's:
connecting, logging in, TLS, pings, subscriptions, errors, reconnecting. What this file knows of nats-py's inside is the
list of what is to be sent, and the parser; it must not know what a message is for.
"""

from __future__ import annotations

import asyncio
from typing import Any

from nats.aio.client import Client
from nats.errors import ConnectionClosedError, OutboundBufferLimitError, ProtocolError
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

__all__ = ["Message", "NatsClient"]

_M, _H = b"MH"


class Message:
    """One that came.

    Attributes:
        reply: where an answer to it should go, or "".
    """

    __slots__ = ("_head", "data", "reply", "subject")

    def __init__(self, subject: str, reply: str, data: bytes, head: bytes) -> None:
        self.subject = subject
        self.reply = reply
        self.data = data
        self._head = head

    @property
    def headers(self) -> dict[str, str]:
        """By name; those of the first line are `Status` and `Description`."""
        if not self._head:
            return {}
        first, *lines = self._head.decode().split("\r\n")
        words = first.split(" ", 2)
        found = dict(zip(("Status", "Description"), words[1:], strict=False))
        for line in lines:
            name, colon, value = line.partition(":")
            if colon:
                found[name.strip()] = value.strip()
        return found


class NatsClient(Client):
    """Subscriptions must be made with `future`: its `set_result` takes each `Message`, and must not raise."""

    def __init__(self) -> None:
        super().__init__()
        self._ps = _Parser(self)
        self._nobody_waits = asyncio.get_running_loop().create_future()
        self._nobody_waits.set_result(None)

    def send(self, subject: str, body: bytes, reply: str = "", headers: dict[str, str] | None = None) -> None:
        """Hand a message to the socket, after all that was sent before.

        Args:
            subject, headers: with no blanks or line ends where NATS has none; they are not looked at.

        Raises:
            ConnectionClosedError, OutboundBufferLimitError: there is no connection.
        """
        if not self.is_connected or self._flush_queue is None:
            raise ConnectionClosedError if self.is_closed else OutboundBufferLimitError
        if headers is None:
            command = b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(body), body)
        else:
            lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
            head = f"NATS/1.0\r\n{lines}\r\n".encode()
            sizes = (len(head), len(head) + len(body))
            command = b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject.encode(), reply.encode(), *sizes, head, body)
        self._pending.append(command)
        self._pending_data_size += len(command)
        if self._flush_queue.empty():
            self._flush_queue.put_nowait(self._nobody_waits)  # wakes the task that writes

    def deliver(self, sid: int, message: Message) -> None:
        """Give a message to its subscription, if that is still there."""
        subscription = self._subs.get(sid)
        if subscription is not None and subscription._future is not None:
            subscription._future.set_result(message)


class _Parser(Parser):
    """Messages are parsed here, by their line ends and lengths; what comes beside them, by nats-py."""

    nc: Any

    async def parse(self, data: bytes = b"") -> None:
        if self.state != AWAITING_CONTROL_LINE:  # nats-py has begun with a message behind something else
            await super().parse(data)
            return
        self.buf += data
        parsed = 0
        try:
            while parsed < len(self.buf) and self.buf[parsed] in (_M, _H):
                if not (size := self._take(parsed)):
                    return
                parsed += size
        except ValueError:
            raise ProtocolError("nats: malformed message") from None
        finally:
            del self.buf[:parsed]
        if self.buf:
            await super().parse()

    def _take(self, start: int) -> int:
        """Deliver the message that starts there; returns its length, or 0 if it is not whole yet."""
        buffer = self.buf
        line_end = buffer.find(b"\r\n", start)
        if line_end < 0:
            return 0
        words = buffer[start:line_end].split()
        has_head = words[0] == b"HMSG"
        size_bytes, head_bytes = int(words[-1]), int(words[-2]) if has_head else 0
        body_start = line_end + 2
        end = body_start + size_bytes + 2
        if len(buffer) < end:
            return 0
        subject, sid, *rest = words[1:]
        reply = rest[0].decode() if len(rest) > 1 + has_head else ""
        head = bytes(buffer[body_start : body_start + head_bytes])
        body = bytes(buffer[body_start + head_bytes : end - 2])
        self.nc.deliver(int(sid), Message(subject.decode(), reply, body, head))
        return end - start
