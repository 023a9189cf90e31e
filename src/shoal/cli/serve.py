"""The commands that run processes: serve, gateway, worker, broker. They parse; `shoal.launch` does the rest."""

from __future__ import annotations

import click

from shoal.cli.options import Command, settings
from shoal.settings import (
    BrokerSettings,
    GatewaySettings,
    LogSettings,
    ModelSettings,
    QueueSettings,
    ServeSettings,
    WorkerSettings,
)

__all__ = ["DEMO_MODEL", "broker", "gateway", "serve", "worker"]

DEMO_MODEL = "sentence-transformers/all-MiniLM-L6-v2"

_models_argument = click.argument("models", nargs=-1, envvar="SHOAL_MODELS")


def _log(log: LogSettings) -> None:
    from shoal.telemetry.logs import configure_logging

    is_debug = click.get_current_context().find_root().params["debug"]
    configure_logging("json" if log.log_format == "json" else "text", "DEBUG" if is_debug else log.log_level.upper())


@click.command(cls=Command)
@_models_argument
@settings(
    started=ServeSettings,
    gateway=GatewaySettings,
    worker=WorkerSettings,
    models_settings=ModelSettings,
    queue=QueueSettings,
    log=LogSettings,
)
def serve(
    models: tuple[str, ...],
    started: ServeSettings,
    gateway: GatewaySettings,
    worker: WorkerSettings,
    models_settings: ModelSettings,
    queue: QueueSettings,
    log: LogSettings,
) -> int:
    """Serve MODELS over HTTP on this machine.

    A model is a hub id (with @revision if you like), a directory, or package:NAME. Without any, the demo model
    sentence-transformers/all-MiniLM-L6-v2 is served.

    \b
    shoal serve
    shoal serve BAAI/bge-small-en-v1.5 ./my-model --port 9000
    shoal serve --workers 2
    """
    from shoal import launch

    _log(log)
    if not models and not models_settings.models_directory:
        models = (DEMO_MODEL,)
    return launch.serve(models, gateway, worker, queue, models_settings, started.workers, log)


@click.command(cls=Command)
@settings(gateway=GatewaySettings, queue=QueueSettings, log=LogSettings)
def gateway(gateway: GatewaySettings, queue: QueueSettings, log: LogSettings) -> int:
    """Run a gateway of a cluster: HTTP in front of a broker.

    \b
    shoal gateway --queue nats://broker:4222 --host 0.0.0.0 --allow-open
    """
    _need_queue(queue)
    from shoal import launch

    _log(log)
    return launch.run_gateway(gateway, queue)


@click.command(cls=Command)
@_models_argument
@settings(worker=WorkerSettings, models_settings=ModelSettings, queue=QueueSettings, log=LogSettings)
def worker(
    models: tuple[str, ...],
    worker: WorkerSettings,
    models_settings: ModelSettings,
    queue: QueueSettings,
    log: LogSettings,
) -> int:
    """Run a worker of a cluster: it pulls work for MODELS from a broker.

    \b
    shoal worker BAAI/bge-small-en-v1.5 --queue nats://broker:4222
    """
    _need_queue(queue)
    if not models and not models_settings.models_directory:
        raise click.UsageError("Name the models to serve, or a --models-directory.")
    from shoal import launch

    _log(log)
    return launch.run_worker(models, worker, queue, models_settings)


@click.command(cls=Command)
@settings(broker=BrokerSettings, log=LogSettings)
def broker(broker: BrokerSettings, log: LogSettings) -> int:
    """Run the bundled broker (nats-server) that gateways and workers meet at.

    \b
    shoal broker --host 0.0.0.0 --token "$SECRET"
    """
    from shoal import launch

    _log(log)
    return launch.run_broker(broker.broker_host, broker.broker_port, broker.broker_directory, broker.broker_token)


def _need_queue(queue: QueueSettings) -> None:
    if not queue.queue:
        raise click.UsageError(
            "Name the broker, such as --queue nats://127.0.0.1:4222 (start one with `shoal broker`). "
            "To run everything in one process, use `shoal serve`."
        )
