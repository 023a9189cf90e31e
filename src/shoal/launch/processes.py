"""The cluster's processes, one function each: gateway, worker, broker. `serve` holds the one that needs no cluster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

from shoal.errors import InvalidRequest
from shoal.gateway import Gateway
from shoal.launch.children import kept_running
from shoal.launch.running import run_until_signal
from shoal.launch.serve import listening, resolve_models
from shoal.launch.status import status_page
from shoal.queue import open_queue
from shoal.queue.broker import Broker
from shoal.settings import GatewaySettings, ModelSettings, QueueSettings, WorkerSettings
from shoal.worker import Worker

__all__ = ["run_broker", "run_gateway", "run_worker"]

logger = logging.getLogger(__name__)


def run_gateway(gateway: GatewaySettings, queue: QueueSettings) -> int:
    """Serve HTTP in front of a broker until a signal comes."""

    async def main(stopping: asyncio.Event) -> int:
        async with contextlib.AsyncExitStack() as stack:
            broker = await open_queue(_needs_broker(queue))
            stack.push_async_callback(broker.close)
            url = await stack.enter_async_context(listening(Gateway(broker, gateway, queue), gateway))
            logger.info("gateway listens on %s", url)
            await stopping.wait()
        return 0

    return run_until_signal(main)


def run_worker(
    models: Sequence[str], worker: WorkerSettings, queue: QueueSettings, models_settings: ModelSettings
) -> int:
    """Pull work for `models` from a broker until a signal comes."""
    specs = resolve_models(models, models_settings)

    async def main(stopping: asyncio.Event) -> int:
        async with contextlib.AsyncExitStack() as stack:
            broker = await open_queue(_needs_broker(queue))
            stack.push_async_callback(broker.close)
            puller = Worker(broker, specs, worker, queue, preload=[spec.id for spec in specs])
            stack.push_async_callback(puller.drain)
            if worker.worker_port:
                await stack.enter_async_context(status_page(puller, worker))
            await puller.start()
            await stopping.wait()
        return 0

    return run_until_signal(main)


def run_broker(host: str, port: int, store_directory: str | None = None, token: str = "") -> int:
    """Run the bundled nats-server until a signal comes."""

    async def main(stopping: asyncio.Event) -> int:
        bundled = Broker(port, host, Path(store_directory) if store_directory else None, token)
        async with kept_running(bundled) as broker:
            logger.info("broker listens on %s", broker.url)
            await stopping.wait()
        return 0

    return run_until_signal(main)


def _needs_broker(queue: QueueSettings) -> QueueSettings:
    if not queue.queue:
        raise InvalidRequest(
            "No broker is named: a gateway or worker of its own needs one.",
            param="queue",
            hint="Start one with `shoal broker` and pass --queue nats://127.0.0.1:4222, or use `shoal serve`.",
        )
    return queue
