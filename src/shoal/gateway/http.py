"""One HTTP exchange in ASGI's terms: a body in, within its limit, and bytes out. It knows no models or surfaces."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, get_args

from shoal.errors import (
    DeadlineExceeded,
    InvalidRequest,
    ShoalError,
    TooLarge,
    Unauthorized,
    UnsupportedMediaType,
)
from shoal.gateway.within import within
from shoal.types import Priority

__all__ = [
    "App",
    "ClientGone",
    "Headers",
    "Message",
    "Receive",
    "Scope",
    "Send",
    "error_headers",
    "priority",
    "read_body",
    "send_reply",
    "timeout_s",
]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_MAX_TIMEOUT_S = 86_400.0
_PRIORITIES: tuple[Priority, ...] = get_args(Priority)
"""The most urgent first."""


class ClientGone(Exception):
    """Nobody waits for this request any more."""


async def read_body(headers: dict[bytes, bytes], receive: Receive, limit_bytes: int, limit_s: float) -> bytes:
    """The whole body.

    Raises:
        TooLarge: it is beyond the limit; told from Content-Length before a byte is read, else when it is crossed.
        UnsupportedMediaType: it is compressed.
        DeadlineExceeded: it is not there after `limit_s`.
        ClientGone: the client hung up in the middle.
    """
    encoding = headers.get(b"content-encoding", b"identity").lower()
    if encoding != b"identity":
        given = encoding[:50].decode("latin-1")
        raise UnsupportedMediaType(f"The Content-Encoding is {given!r}; send it plain.", param="Content-Encoding")
    if (length_bytes := _length_bytes(headers)) > limit_bytes:
        raise _body_too_large(length_bytes, limit_bytes)
    try:
        return await within(limit_s, _read(receive, limit_bytes))  # as a rule it has come with its head
    except TimeoutError:
        raise DeadlineExceeded(
            f"The body did not arrive within {limit_s:.3g} s.",
            hint="X-Shoal-Timeout (seconds) allows more, up to what the server allows a body.",
        ) from None


async def _read(receive: Receive, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size_bytes += len(part)
        if size_bytes > limit_bytes:
            raise _body_too_large(size_bytes, limit_bytes)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _body_too_large(size_bytes: int, limit_bytes: int) -> TooLarge:
    return TooLarge(
        f"The body is {size_bytes} bytes or more; the limit is {limit_bytes}.", hint="Send several requests."
    )


def timeout_s(headers: dict[bytes, bytes], default_s: float) -> float:
    """Seconds that the request may take, from X-Shoal-Timeout.

    Raises:
        InvalidRequest: the header is no number above 0, or above a day.
    """
    text = headers.get(b"x-shoal-timeout")
    if text is None:
        return default_s
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if 0 < seconds <= _MAX_TIMEOUT_S:
        return seconds
    given = text[:50].decode("latin-1")
    raise InvalidRequest(
        f"X-Shoal-Timeout is {given!r}; it must be a number of seconds above 0 and at most {_MAX_TIMEOUT_S:g}.",
        param="X-Shoal-Timeout",
    )


def priority(headers: dict[bytes, bytes], most_urgent: Priority) -> Priority:
    """The lane of a request, from X-Shoal-Priority, but no more urgent than its caller may have.

    Raises:
        InvalidRequest: it is no lane.
    """
    text = headers.get(b"x-shoal-priority", b"default").decode("latin-1").lower()
    if text not in _PRIORITIES:
        allowed = ", ".join(_PRIORITIES)
        raise InvalidRequest(
            f"X-Shoal-Priority is {text[:50]!r}; it must be one of {allowed}.", param="X-Shoal-Priority"
        )
    return _PRIORITIES[max(_PRIORITIES.index(text), _PRIORITIES.index(most_urgent))]


def _length_bytes(headers: dict[bytes, bytes]) -> int:
    """What Content-Length says, 0 where it says nothing."""
    length = headers.get(b"content-length", b"")
    return int(length[:20]) if length.isdigit() else 0


def error_headers(error: ShoalError) -> Headers:
    """What an error says in headers."""
    if isinstance(error, Unauthorized):
        return [(b"www-authenticate", b'Bearer realm="shoal"')]
    if error.retry_after_s is None:
        return []
    return [(b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s)))]


async def send_reply(send: Send, status: int, media_type: bytes, body: bytes, headers: Headers) -> None:
    """A whole reply."""
    own = [(b"content-type", media_type), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": own + headers})
    await send({"type": "http.response.body", "body": body})
