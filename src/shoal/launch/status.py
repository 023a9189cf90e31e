"""A worker's own small HTTP port in a cluster: metrics, health and readiness. It answers nothing else."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator

from shoal.gateway.http import Receive, Scope, Send, send_reply
from shoal.gateway.server import Server
from shoal.settings import GatewaySettings, WorkerSettings
from shoal.telemetry.metrics import CONTENT_TYPE
from shoal.worker import Worker

__all__ = ["status_page"]

logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def status_page(worker: Worker, settings: WorkerSettings) -> AsyncIterator[str]:
    """The page of a worker, from before its models are loaded until it has left; yields its URL."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/metrics":
                await send_reply(send, 200, CONTENT_TYPE.encode(), worker.measures.metrics.page(), [])
            case "/healthz" | "/health":
                await _say(send, 200, b'{"status":"alive"}')
            case "/readyz" | "/ready":
                word = b"ready" if worker.is_ready else b"not ready"
                await _say(send, 200 if worker.is_ready else 503, b'{"status":"%b"}' % word)
            case _:
                await _say(send, 404, b'{"error":"There are /metrics, /healthz and /readyz."}')

    # Whoever names another address than loopback means it: there is nothing here to use up or to read but numbers.
    server = Server(app, GatewaySettings(host=settings.worker_host, port=settings.worker_port, allow_open=True))
    url = f"http://{settings.worker_host}:{await server.start()}"
    logger.info("the worker's page is at %s", url)
    try:
        yield url
    finally:
        await server.stop(1.0)


async def _say(send: Send, status: int, body: bytes) -> None:
    await send_reply(send, status, b"application/json", body, [])
