"""The gateway: an ASGI application in front of a queue, and what it hears from workers."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection
from typing import TypeVar

import msgspec

import shoal
from shoal.gateway.cors import with_cors
from shoal.gateway.demand import Demands
from shoal.gateway.directory import Directory
from shoal.gateway.dispatch import Dispatch
from shoal.gateway.http import App, Receive, Scope, Send
from shoal.gateway.keys import Access
from shoal.gateway.measures import Measures
from shoal.gateway.operations import Operation, Operations
from shoal.gateway.pages import Pages
from shoal.gateway.records import Records
from shoal.gateway.routes import OWN_ROUTES, Routes
from shoal.queue.base import Listener, Queue
from shoal.settings import GatewaySettings, QueueSettings
from shoal.telemetry.metrics import Metrics
from shoal.telemetry.tracing import open_tracing
from shoal.types import decode_demand, decode_status

__all__ = ["Gateway"]

_log = logging.getLogger(__name__)

_TICK_S = 1.0
"""How often workers that fell silent, and models that nobody has loaded any more, are looked for."""

T = TypeVar("T")


class Gateway:
    """Answers HTTP with the help of whoever pulls from the queue.

    Attributes:
        app: the ASGI application; an HTTP server runs it (see `server`).

    Args:
        queue: shared with workers; not closed here.
        metrics: where the gateway's are declared; what else stands there shows on its page.

    Raises:
        InvalidRequest: the file of keys cannot be read, or is wrong; traces are wanted without their extra.
    """

    def __init__(
        self,
        queue: Queue,
        settings: GatewaySettings,
        queue_settings: QueueSettings,
        metrics: Metrics | None = None,
    ) -> None:
        gateway_id = secrets.token_hex(6)
        routes = Routes()
        self._queue = queue
        self._pool = queue_settings.pool
        self._directory = Directory(time.monotonic, self._say_hello)
        self._measures = Measures(metrics or Metrics(), [surface.route for surface in routes.surfaces], OWN_ROUTES)
        self._access = Access(settings.keys_file, self._measures.metrics)
        self._measures.know_classes(self._access.classes)
        self._demands = Demands(queue, f"demand.{self._pool}")
        self._dispatch = Dispatch(queue, self._pool, gateway_id, self._directory, self._measures, settings.max_wait_s)
        self._listeners: list[Listener] = []
        self._ticking: asyncio.TimerHandle | None = None
        self._tracing = open_tracing(settings.otlp_endpoint, settings.trace_ratio, shoal.__version__)
        records = Records(settings.access_log, self._tracing)
        operations = Operations(
            settings, self._directory, self._demands, self._dispatch, self._measures, self._access, records, gateway_id
        )
        answering: dict[str, App] = {path: Operation(operations, surface) for path, surface in routes.paths.items()}
        pages = Pages(self._directory, self._measures, self._access, settings, lambda: self.is_ready, routes.speaker)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            path = scope.get("path", "")
            if (found := answering.get(path)) is None and (named := routes.named(path)) is not None:
                path, scope["shoal.model"] = named
                found = answering[path]
            await (found or pages)(scope, receive, send)

        self.app: App = with_cors(app, settings.cors_origins)

    async def start(self) -> None:
        """Listen to workers and ask who is there."""
        self._measures.watch(
            lambda: float(self._dispatch.num_open_chunks),
            lambda: float(self._directory.num_workers),
            lambda: self._dispatch.waiting_s,
            lambda: self._dispatch.on_way_s,
        )
        self._directory.on_change(self._know_models)
        await self._dispatch.start()
        self._listeners = [
            await self._queue.listen(f"status.{self._pool}", _hearing(decode_status, self._directory.hear)),
            await self._queue.listen(f"demand.{self._pool}", _hearing(decode_demand, self._demands.hear)),
        ]
        self._queue.on_reconnect(self._say_hello)
        self._say_hello()
        self._tick()

    async def stop(self) -> None:
        """Fail what is still open and stop listening."""
        if self._ticking is not None:
            self._ticking.cancel()
        self._demands.close()
        await self._dispatch.stop()
        for listener in self._listeners:
            await listener.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)

    def refuse_open(self) -> None:
        """Answer all requests that are still open with 503."""
        self._dispatch.refuse_open()

    @property
    def is_ready(self) -> bool:
        """Whether a request for some model would be answered: queue connected, a worker alive with a model to serve."""
        return self._directory.is_ready and self._queue.is_connected

    async def wait_until_ready(self) -> None:
        """Return when a worker is ready."""
        await self._directory.ready.wait()

    @property
    def model_names(self) -> list[str]:
        """Ids of the models served, sorted."""
        return self._directory.ids

    def _say_hello(self, worker_id: str = "") -> None:
        """Ask one worker, or all, what there is to know."""
        self._queue.send(f"hello.{self._pool}", worker_id.encode())

    def _refresh_keys(self) -> None:
        before = self._access.classes
        self._access.refresh()
        if self._access.classes != before:
            self._measures.know_classes(self._access.classes)
            self._know_models(self._directory.ids)

    def _know_models(self, models: Collection[str]) -> None:
        for model in models:
            if self._directory.knows(model):
                self._measures.know(model)

    def _tick(self) -> None:
        self._refresh_keys()
        if self._queue.is_connected:
            self._directory.expire()
        else:
            self._directory.excuse_silence()
        for model in self._dispatch.open_models:
            if (served := self._directory.get(model)) is not None:
                self._demands.want(served)
        self._ticking = asyncio.get_running_loop().call_later(_TICK_S, self._tick)


def _hearing(decode: Callable[[bytes], T], hear: Callable[[T], None]) -> Callable[[bytes], None]:
    """A listener that never raises: what it cannot read, it logs."""

    def on_message(body: bytes) -> None:
        try:
            message = decode(body)
        except msgspec.MsgspecError as error:
            _log.warning("unreadable message: %s", error)
            return
        hear(message)

    return on_message
