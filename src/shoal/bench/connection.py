"""HTTP/1.1 for the load generator: a request is bytes made beforehand, a reply is status, headers and body.

It costs some 50 us of CPU a request, so that the generator is not what is measured. It must not know what bodies mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from shoal.errors import InvalidRequest

__all__ = ["Address", "Connections", "Reply", "message"]


class Address(NamedTuple):
    """Where a URL leads."""

    host: str
    port: int
    is_secure: bool
    path: str

    @staticmethod
    def of(url: str) -> Address:
        """
        Raises:
            InvalidRequest: the URL has no http(s) scheme or no host.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequest(f"{url!r} is no URL to send to.", hint="It looks like http://127.0.0.1:8080.")
        is_secure = parts.scheme == "https"
        port = parts.port or (443 if is_secure else 80)
        return Address(parts.hostname, port, is_secure, parts.path.rstrip("/"))

    @property
    def host_header(self) -> str:
        """What the header Host says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_secure else 80) else f"{host}:{self.port}"


class Reply(NamedTuple):
    """An answer, read to its end. Names of headers are in small letters."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes


def message(address: Address, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """A request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", f"host: {address.host_header}", "user-agent: shoal-bench"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class _Connection(asyncio.Protocol):
    """One request at a time; also what httptools calls back."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[Reply] | None = None
        self._transport: asyncio.Transport | None = None
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self.is_open = True

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._fail(error or ConnectionResetError("the server closed the connection"))

    def ask(self, request: bytes) -> asyncio.Future[Reply]:
        """The reply to a request, which follows on no other that is still open."""
        assert self._transport is not None  # noqa: S101
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._waiting = self._loop.create_future()
        self._transport.write(request)
        return self._waiting

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            self.close()  # nobody asked
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"the answer is no HTTP: {error}"))
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        waiting, self._waiting = self._waiting, None
        if not self._parser.should_keep_alive():
            self.is_open = False
        if waiting is not None and not waiting.done():
            body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            waiting.set_result(Reply(self._parser.get_status_code(), self._headers, body))

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)


class Connections:
    """Kept-alive connections to one address; as many as there are requests at once, up to a limit.

    Attributes:
        num_waits: requests that had to wait because the limit was reached.
    """

    def __init__(self, address: Address, max_connections: int) -> None:
        self._address = address
        self._idle: list[_Connection] = []
        self._room = asyncio.Semaphore(max_connections)
        self._tls = ssl.create_default_context() if address.is_secure else None
        self.num_waits = 0

    async def ask(self, request: bytes, timeout_s: float) -> Reply:
        """Send a request and read the reply.

        Raises:
            OSError: no connection, or it was lost.
            TimeoutError: no reply in time.
        """
        async with asyncio.timeout(timeout_s):
            self.num_waits += self._room.locked()
            async with self._room:
                connection = await self._take()
                try:
                    reply = await connection.ask(request)
                except BaseException:
                    connection.close()
                    raise
                if connection.is_open:
                    self._idle.append(connection)
                else:
                    connection.close()
                return reply

    async def _take(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        loop = asyncio.get_running_loop()
        address = self._address
        _, connection = await loop.create_connection(_Connection, address.host, address.port, ssl=self._tls)
        return connection

    def close(self) -> None:
        """Hang up."""
        for connection in self._idle:
            with contextlib.suppress(OSError):
                connection.close()
        self._idle.clear()
