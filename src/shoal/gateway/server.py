"""Runs an ASGI application under uvicorn with httptools' parser, inside an event loop that somebody else runs.

Chosen by measurement over granian 2.8, which uses a fifth more CPU a request: its threads wake the event loop for each
(benchmarks/http_server.py). Signals are the caller's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import resource
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import uvicorn

from shoal.errors import InvalidRequest
from shoal.gateway.guarded import GuardedProtocol, Limits
from shoal.gateway.http import App
from shoal.gateway.tls import Certificate
from shoal.settings import GatewaySettings

__all__ = ["Server"]

_LOOK_S = 1.0
"""How often connections are looked at whose time has come, and certificates that may have changed."""

_LAST_ANSWERS_S = 2
"""Seconds in which those who waited in vain at a shutdown get their answer."""

_SPARE_FILES = 512
"""Open files beside connections."""

_BACKLOG = 2048


class Server:
    """An HTTP server for one application.

    Args:
        app: ASGI application.
        settings: host, port, and whether a non-loopback host is allowed.
    """

    def __init__(self, app: App, settings: GatewaySettings) -> None:
        self._settings = settings
        config = uvicorn.Config(
            app,
            http=cast(type[asyncio.Protocol], partial(GuardedProtocol, _limits(settings))),
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=math.ceil(settings.keep_alive_s),
            backlog=_BACKLOG,
        )
        self._config = config
        self._certificate: Certificate | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._server = _Uvicorn(config)
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Bind and accept; returns the port.

        Raises:
            InvalidRequest: the address is open to others, without keys, and `allow_open` is not set.
            InvalidRequest: a certificate or key cannot be used.
            OSError: the address cannot be had; names it.
        """
        refuse_open_host(self._settings)
        _allow_files(self._settings.max_connections + _SPARE_FILES)
        self._config.load()
        if self._settings.tls_cert:
            self._certificate = Certificate(self._settings)
            self._config.ssl = self._certificate.context
        listener = _bind(self._settings.host, self._settings.port)
        self._serving = asyncio.ensure_future(self._server.serve(sockets=[listener]))
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise OSError("The HTTP server ended before it started.")
            await asyncio.sleep(0)
        self._look_after()
        return int(listener.getsockname()[1])

    async def stop(self, graceful_s: float, at_last: Callable[[], None] = lambda: None) -> None:
        """Accept nothing more, let open requests finish for so long, have `at_last` answer the rest, and close."""
        if self._looking is not None:
            self._looking.cancel()
        if self._serving is None:
            return
        self._server.config.timeout_graceful_shutdown = math.ceil(graceful_s + _LAST_ANSWERS_S)
        self._server.should_exit = True
        timer = asyncio.get_running_loop().call_later(graceful_s, at_last)
        await self._serving
        timer.cancel()
        self._serving = None

    def _look_after(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self._server.server_state.connections):
            connection.look_after(now)  # type: ignore[union-attr]  # all are ours
        if self._certificate is not None:
            self._certificate.refresh()
        self._looking = loop.call_later(_LOOK_S, self._look_after)


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def refuse_open_host(settings: GatewaySettings) -> None:
    """Refuse to serve others by accident.

    Raises:
        InvalidRequest: the host is no loopback address, nobody is asked for a key or certificate, and `allow_open` is
            not set.
    """
    if settings.allow_open or settings.keys_file or settings.tls_client_ca or _is_loopback(settings.host):
        return
    raise InvalidRequest(
        f"host is {settings.host!r}, and there are no API keys: anybody who reaches it could use it.",
        param="host",
        hint="Make keys with `shoal keys create` and pass --keys-file, or set --allow-open (SHOAL_ALLOW_OPEN=true).",
    )


def _limits(settings: GatewaySettings) -> Limits:
    return Limits(
        settings.header_timeout_s,
        settings.keep_alive_s,
        settings.max_header_bytes,
        settings.max_headers,
        settings.max_connections,
    )


def _allow_files(number: int) -> None:
    """Each connection is an open file, of which Linux allows 1024 unless asked for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise OSError(f"host {host!r} is no address of this machine: {error.strerror}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"Cannot listen on {host} port {port}: {error.strerror}") from error
    return listener
