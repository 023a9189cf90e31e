"""`shoal serve`: gateway and worker in one process over the queue in memory, or beside worker processes over NATS.

Both wirings are the same gateway and the same worker; only the queue between them differs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

from shoal.catalog import resolve
from shoal.catalog.spec import ModelSpec
from shoal.errors import NotReady
from shoal.gateway import Gateway
from shoal.gateway.server import Server
from shoal.launch.children import Child, kept_running
from shoal.launch.running import run_until_signal
from shoal.queue import open_queue
from shoal.queue.broker import Broker
from shoal.runtimes.survey import choose_runtime
from shoal.settings import GatewaySettings, LogSettings, ModelSettings, QueueSettings, WorkerSettings
from shoal.telemetry.metrics import Metrics
from shoal.worker import Worker
from shoal.worker.memory import budget_bytes

__all__ = ["listening", "resolve_models", "serve"]


def serve(
    models: Sequence[str],
    gateway: GatewaySettings,
    worker: WorkerSettings,
    queue: QueueSettings,
    models_settings: ModelSettings,
    workers: int,
    log: LogSettings,
) -> int:
    """Serve `models` over HTTP until a signal comes; returns the exit code.

    Args:
        workers: 0 runs the worker in this process over the queue in memory. A positive number starts so many worker
            processes and a broker, unless `queue.queue` names one that runs already.
        log: what the worker processes write; this process's logging is set up already.
    """
    specs = resolve_models(models, models_settings)
    worker = dataclasses.replace(worker, runtime=choose_runtime(worker.runtime))
    if workers == 0:
        return run_until_signal(lambda stopping: _serve_alone(specs, gateway, worker, queue, stopping))
    return run_until_signal(
        lambda stopping: _serve_with_children(models, gateway, worker, queue, (models_settings, log), workers, stopping)
    )


def resolve_models(models: Sequence[str], settings: ModelSettings) -> list[ModelSpec]:
    """Read the facts of every model named and of those in the models directory, before anything is started.

    Raises:
        UnknownModel, ModelRefused: the first model that cannot be served.
    """
    names = list(models)
    if settings.models_directory:
        with os.scandir(settings.models_directory) as entries:
            names += sorted(entry.path for entry in entries if entry.is_dir())
    return [resolve(name, settings) for name in names]


async def _serve_alone(
    specs: Sequence[ModelSpec],
    gateway_settings: GatewaySettings,
    worker_settings: WorkerSettings,
    queue_settings: QueueSettings,
    stopping: asyncio.Event,
) -> int:
    started = time.perf_counter()
    queue = await open_queue(queue_settings)
    metrics = Metrics()
    preload = [spec.id for spec in specs]
    worker = Worker(queue, specs, worker_settings, queue_settings, preload=preload, metrics=metrics)
    gateway = Gateway(queue, gateway_settings, queue_settings, metrics)
    try:
        async with listening(gateway, gateway_settings) as url:
            await worker.start()
            await _welcome(gateway, url, gateway_settings, started, worker.wait_ready(), stopping)
            await stopping.wait()
    finally:
        await worker.drain()
        await queue.close()
    return 0


async def _serve_with_children(
    models: Sequence[str],
    gateway_settings: GatewaySettings,
    worker_settings: WorkerSettings,
    queue_settings: QueueSettings,
    other_settings: tuple[Any, ...],
    num_workers: int,
    stopping: asyncio.Event,
) -> int:
    started = time.perf_counter()
    async with contextlib.AsyncExitStack() as stack:
        if not queue_settings.queue:
            # Other users of this machine reach its port, too.
            token = queue_settings.queue_token or secrets.token_urlsafe(32)
            broker = await stack.enter_async_context(kept_running(Broker(port=0, token=token)))
            queue_settings = dataclasses.replace(queue_settings, queue=broker.url, queue_token=token)
        if not worker_settings.threads:
            share = max(1, len(os.sched_getaffinity(0)) // num_workers)
            worker_settings = dataclasses.replace(worker_settings, threads=share)
        if not worker_settings.memory_budget and worker_settings.runtime != "torch":  # which may have a GPU's memory
            budget = str(budget_bytes("") // num_workers)
            worker_settings = dataclasses.replace(worker_settings, memory_budget=budget)
        command = [sys.executable, "-m", "shoal.cli.main", "worker", *models]
        for number in range(num_workers):
            port = worker_settings.worker_port and worker_settings.worker_port + number
            own = dataclasses.replace(worker_settings, worker_port=port)
            child = Child(f"worker {number}", command, own, queue_settings, *other_settings)
            await stack.enter_async_context(child)
        queue = await open_queue(queue_settings)
        stack.push_async_callback(queue.close)
        gateway = Gateway(queue, gateway_settings, queue_settings)
        url = await stack.enter_async_context(listening(gateway, gateway_settings))
        await _welcome(gateway, url, gateway_settings, started, gateway.wait_until_ready(), stopping)
        await stopping.wait()
    return 0


@contextlib.asynccontextmanager
async def listening(gateway: Gateway, settings: GatewaySettings) -> AsyncIterator[str]:
    """A gateway behind an HTTP server; on leaving, open requests are answered first."""
    server = Server(gateway.app, settings)
    await gateway.start()
    try:
        port = await _start(server)
        try:
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            yield f"{'https' if settings.tls_cert else 'http'}://{host}:{port}"
        finally:
            await server.stop(settings.graceful_s, gateway.refuse_open)
    finally:
        await gateway.stop()


async def _start(server: Server) -> int:
    try:
        return await server.start()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        hint = "Stop what listens there, or choose another port with --port (0 takes a free one)."
        raise NotReady(f"{error.strerror}.", hint=hint) from error


async def _welcome(
    gateway: Gateway,
    url: str,
    settings: GatewaySettings,
    started: float,
    ready: Coroutine[Any, Any, None],
    stopping: asyncio.Event,
) -> None:
    """Say on stderr where to knock, and once `ready` returns, what to try.

    Raises:
        ShoalError: a model cannot be loaded.
    """
    print(f"Shoal listens on {url} and loads its models ...", file=sys.stderr, flush=True)
    waiting = {asyncio.create_task(ready), asyncio.create_task(_wait(stopping))}
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*done)
    if stopping.is_set():
        return
    names = gateway.model_names
    seconds = time.perf_counter() - started
    header, api_key = ("-H 'authorization: Bearer KEY' ", "KEY") if settings.keys_file else ("", "none")
    welcome = _WELCOME.format(
        seconds=seconds, models=", ".join(names), url=url, model=names[0], header=header, api_key=api_key
    )
    print(welcome, file=sys.stderr, flush=True)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


_WELCOME = """\
Ready after {seconds:.1f} s: {models}

  curl {url}/v1/embeddings {header}-H 'content-type: application/json' \\
    -d '{{"model": "{model}", "input": "hello shoal"}}'

  openai:  OpenAI(base_url="{url}/v1", api_key="{api_key}").embeddings.create(model="{model}", input=["hello"])
  shoal:   shoal embed --url {url} "hello shoal" "another text"
  docs:    {url}/docs      metrics: {url}/metrics      stop: Ctrl-C
"""
