"""The short way of messages through nats-py's client: whatever pieces a socket gives, the same messages come out."""

from __future__ import annotations

from typing import Any

import pytest
from nats.aio.subscription import Subscription
from nats.errors import OutboundBufferLimitError, ProtocolError

from shoal.queue.nats_client import NatsClient

HEAD = b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\n\r\n"
ID = b"NATS/1.0\r\nNats-Msg-Id: a:b\r\n\r\n"
WIRE = (
    b"MSG inbox.1 7 5\r\nhello\r\n"
    b"MSG inbox.2 7 $JS.ACK.s.c.1.2.3 0\r\n\r\n"
    + b"HMSG inbox.3 7 %d %d\r\n" % (len(HEAD), len(HEAD))
    + HEAD
    + b"\r\n+OK\r\nMSG inbox.4 7 4\r\n\r\n\r\n\r\nMSG inbox.5 8 1\r\nx\r\n"
    + b"HMSG inbox.6 7 to.me %d %d\r\n" % (len(ID), len(ID) + 6)
    + ID
    + b"MSG x \r\n"
)
EXPECTED = [
    ("inbox.1", "", b"hello", {}),
    ("inbox.2", "$JS.ACK.s.c.1.2.3", b"", {}),
    ("inbox.3", "", b"", {"Status": "408", "Description": "Request Timeout", "Nats-Pending-Messages": "3"}),
    ("inbox.4", "", b"\r\n\r\n", {}),
    ("inbox.6", "to.me", b"MSG x ", {"Nats-Msg-Id": "a:b"}),
]
"""Without that of subscription 8, which nobody has."""


class Heard:
    """In the place of a subscription's future."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str, bytes, dict[str, str]]] = []

    def cancelled(self) -> bool:
        return False

    def set_result(self, message: Any) -> None:
        self.messages.append((message.subject, message.reply, message.data, dict(message.headers or {})))


def client() -> tuple[NatsClient, Heard]:
    made, heard = NatsClient(), Heard()
    made._subs[7] = Subscription(made, 7, "inbox.*", future=heard)  # type: ignore[arg-type]
    return made, heard


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40, len(WIRE)])
async def test_messages_come_whole_whatever_pieces_they_came_in(size: int) -> None:
    made, heard = client()
    for start in range(0, len(WIRE), size):
        await made._ps.parse(WIRE[start : start + size])
    assert heard.messages == EXPECTED


async def test_wherever_the_stream_is_cut_nothing_is_lost() -> None:
    for cut in range(1, len(WIRE)):
        made, heard = client()
        await made._ps.parse(WIRE[:cut])
        await made._ps.parse(WIRE[cut:])
        assert heard.messages == EXPECTED, cut


@pytest.mark.parametrize("line", [b"MSG inbox.1 7\r\n", b"MSG inbox.1 7 x\r\n", b"HMSG a b c d\r\n", b"WHAT\r\n"])
async def test_what_is_no_message_ends_the_connection(line: bytes) -> None:
    made, _ = client()
    with pytest.raises(ProtocolError):
        await made._ps.parse(line + b"MSG inbox.1 7 0\r\n\r\n")


async def test_without_a_connection_nothing_is_kept_for_later() -> None:
    made, _ = client()
    with pytest.raises(OutboundBufferLimitError):
        made.send("subject", b"body")
    assert not made._pending
