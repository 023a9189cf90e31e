"""`shoal dlq`: the dead letters of a cluster, requests that its workers gave up for good. It parses and prints."""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from shoal.cli.options import Command, Number, settings
from shoal.errors import ShoalError
from shoal.settings import QueueSettings

if TYPE_CHECKING:
    from shoal.queue.base import Queue
    from shoal.types import DeadLetter

__all__ = ["dlq"]


@click.group()
def dlq() -> None:
    """Dead letters: requests that workers gave up for good, because an input killed the runtime or nobody answered.

    A letter tells what it was and its SHA-256, not the texts, unless workers run with --keep-dead-bodies. Letters lie
    in the broker: up to 1,000, 64 MiB and seven days of them. `shoal serve` in one process logs and counts what it
    gives up; its letters lie in its memory, out of reach.

    \b
    shoal dlq list --queue nats://127.0.0.1:4222
    shoal dlq replay 7 --queue nats://127.0.0.1:4222
    """


@dlq.command("list", cls=Command)
@click.option("--json", "is_json", is_flag=True, help="One JSON object a line instead of a table.")
@settings(queue=QueueSettings)
def list_(is_json: bool, queue: QueueSettings) -> None:
    """List the letters of a pool, oldest first.

    \b
    shoal dlq list --queue nats://127.0.0.1:4222
    shoal dlq list --json | jq .reason
    """
    from shoal.launch.dead_letters import read_letters

    for number, letter in _with_queue(queue, lambda broker: read_letters(broker, queue.pool)):
        click.echo(_json(number, letter) if is_json else _line(number, letter))


@dlq.command(cls=Command)
@click.argument("number", type=int)
@settings(queue=QueueSettings)
def show(number: int, queue: QueueSettings) -> None:
    """Show what letter NUMBER tells, without its texts.

    \b
    shoal dlq show 7 --queue nats://127.0.0.1:4222
    """
    from shoal.launch.dead_letters import find_letter

    click.echo(_json(number, _with_queue(queue, lambda broker: find_letter(broker, queue.pool, number)), indent=2))


@dlq.command(cls=Command)
@click.argument("number", type=int, required=False)
@click.option("--all", "is_all", is_flag=True, help="Replay all that hold their texts.")
@click.option("--timeout", "timeout_s", type=Number(0, min_open=True), default=60.0, show_default=True,
              help="Seconds to wait for an answer.")  # fmt: skip
@settings(queue=QueueSettings)
def replay(number: int | None, is_all: bool, timeout_s: float, queue: QueueSettings) -> int:
    """Send letter NUMBER, or all, to the workers again; what is answered is removed.

    A worker that gave an input up refuses it at once for ten minutes, or until it is started again.

    \b
    shoal dlq replay 7 --queue nats://127.0.0.1:4222
    shoal dlq replay --all
    """
    if (number is None) != is_all:
        raise click.UsageError("Name one letter, or --all.")

    async def run(broker: Queue) -> int:
        from shoal.launch.dead_letters import find_letter, read_letters

        if number is not None:
            letters = [(number, await find_letter(broker, queue.pool, number))]
        else:
            letters = [entry for entry in await read_letters(broker, queue.pool) if entry[1].chunk]
        return max([await _replay_one(broker, queue.pool, *entry, timeout_s) for entry in letters], default=0)

    failed: int = _with_queue(queue, run)
    return failed


@dlq.command(cls=Command)
@click.argument("numbers", type=int, nargs=-1)
@settings(queue=QueueSettings)
def purge(numbers: tuple[int, ...], queue: QueueSettings) -> None:
    """Remove letters NUMBERS, or all.

    \b
    shoal dlq purge 7 8 --queue nats://127.0.0.1:4222
    shoal dlq purge
    """

    async def run(broker: Queue) -> int:
        return sum([await broker.unbury(queue.pool, number) for number in numbers or (None,)])

    click.echo(f"removed {_with_queue(queue, run)}")


async def _replay_one(broker: Queue, pool: str, number: int, letter: DeadLetter, timeout_s: float) -> int:
    """Replay one and say what became of it; returns 0 if it was answered, else 1."""
    from shoal.launch.dead_letters import replay as replay_letter

    try:
        reply = await replay_letter(broker, pool, number, letter, timeout_s)
    except ShoalError as error:
        click.echo(f"{number}: {error.code}: {error}", err=True)
        return 1
    click.echo(f"{number}: answered, {len(reply.num_tokens)} items")
    return 0


def _with_queue(queue: QueueSettings, use: Callable[[Queue], Awaitable[Any]]) -> Any:
    if not queue.queue:
        raise click.UsageError("Name the broker, such as --queue nats://127.0.0.1:4222.")

    import asyncio

    async def run() -> Any:
        from shoal.queue import open_queue

        broker = await open_queue(queue)
        try:
            return await use(broker)
        finally:
            await broker.close()

    return asyncio.run(run())


def _line(number: int, letter: DeadLetter) -> str:
    at = datetime.datetime.fromtimestamp(letter.buried_at, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    what = f"{letter.operation} {letter.model} items={letter.num_items} bytes={letter.num_bytes}"
    who = f"request={letter.request_id}.{letter.index} sha256={letter.digest[:12]}"
    return f"{number:>6}  {at}  {letter.reason:<11}  {what} {who}{' with its texts' if letter.chunk else ''}"


def _json(number: int, letter: DeadLetter, indent: int = 0) -> str:
    plain = {"number": number, **msgspec.to_builtins(letter), "has_texts": bool(letter.chunk)}
    plain.pop("chunk", None)
    encoded = msgspec.json.encode(plain)
    return (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()
