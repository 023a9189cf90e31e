"""A connection that clients cannot hold for ever or fill without end: heads in bounded time and size, replies read.

Nothing here costs a timer a request: each connection knows when it is to be closed, and one timer a server looks at
all of them. While a request is being answered that is never; its own deadline ends it.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, NamedTuple

from uvicorn.config import Config
from uvicorn.server import ServerState

from shoal.errors import NotReady, TooLarge
from shoal.gateway.corked import CorkedProtocol, plain_error

__all__ = ["GuardedProtocol", "Limits"]


class Limits(NamedTuple):
    """What a connection may do; see the settings of the same names."""

    header_timeout_s: float
    keep_alive_s: float
    max_header_bytes: int
    max_headers: int
    max_connections: int


class _HeadTooLarge(Exception):
    """Ends parsing."""


class GuardedProtocol(CorkedProtocol):
    """One connection."""

    def __init__(
        self, limits: Limits, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: Any = None
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._closes_at = math.inf
        self._unread_bytes = math.inf
        self._head_bytes = 0
        self._data_bytes = 0
        self._is_in_head = False
        self._is_in_message = False
        self._what_is_too_large = ""

    # Calls of the server's timer

    def look_after(self, now: float) -> None:
        """Close the connection if its time has come, unless its client is still reading a reply."""
        if now < self._closes_at:
            return
        before, self._unread_bytes = self._unread_bytes, self.transport.get_write_buffer_size()
        if 0 < self._unread_bytes < before:
            self._closes_at = now + self._limits.header_timeout_s
        else:
            self.transport.abort()

    # Calls of the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._closes_at = self.loop.time() + self._limits.header_timeout_s
        if len(self.connections) > self._limits.max_connections:
            message = f"There are {self._limits.max_connections} connections, the limit."
            self.refuse(b"503 Service Unavailable\r\nretry-after: 1", plain_error(NotReady.code, message))

    def data_received(self, data: bytes) -> None:
        self._data_bytes = len(data)
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.max_header_bytes and not self.transport.is_closing():
                self._what_is_too_large = (
                    f"{self._head_bytes} bytes or more; the limit is {self._limits.max_header_bytes}"
                )
                self.send_400_response("")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._closes_at = self.loop.time() + self._limits.header_timeout_s

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.cycle is not None and not self.cycle.response_complete:
            self._closes_at = self._unread_bytes = math.inf

    # Calls of the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = self._is_in_message = True
        self._head_bytes = 0
        if self.cycle is None or self.cycle.response_complete:
            self._closes_at = self.loop.time() + self._limits.header_timeout_s

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._check_head()
        self._closes_at = self._unread_bytes = math.inf
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_in_message = False
        if self.cycle.response_complete:
            self._closes_at = self.loop.time() + self._limits.keep_alive_s

    # Calls of the application and of uvicorn

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:  # else a further request was there already
            limit_s = self._limits.header_timeout_s if self._is_in_message else self._limits.keep_alive_s
            self._closes_at = self.loop.time() + limit_s

    def send_400_response(self, msg: str) -> None:
        if self._what_is_too_large:
            message = f"The request line and headers are {self._what_is_too_large}."
            self.refuse(b"431 Request Header Fields Too Large", plain_error(TooLarge.code, message))
        else:
            super().send_400_response(msg)

    def _check_head(self) -> None:
        """Raises:
        _HeadTooLarge: too many headers or bytes; they are counted only where the data that came could hold too many.
        """
        limits = self._limits
        if len(self.headers) > limits.max_headers:
            self._what_is_too_large = f"{len(self.headers)} headers; the limit is {limits.max_headers}"
            raise _HeadTooLarge
        if self._head_bytes + self._data_bytes <= limits.max_header_bytes:
            return
        size_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size_bytes > limits.max_header_bytes:
            self._what_is_too_large = f"{size_bytes} bytes; the limit is {limits.max_header_bytes}"
            raise _HeadTooLarge
