"""What one chunk costs the queue: publish, delivery, reply and ack, in CPU time of each process.

    python benchmarks/queue_cost.py [--rounds 20000] [--in-flight 64] [--body-bytes 300] [--json]

A round is what a single-text request makes of the queue: an awaited publish, a delivery to a standing pull, a reply
over a plain message, the ack, and the credit for the next. For JetStream the publisher and the puller are processes of
their own beside the broker; in memory both are this one, so its figure is for both sides together.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import time
from typing import Any

import uvloop

from shoal.queue import open_queue
from shoal.queue.base import Lease, Pull, Queue
from shoal.queue.broker import Broker
from shoal.settings import QueueSettings
from shoal.types import Lane

LANE, BACKLOG = Lane("default", "org/model"), Lane("default", "org/backlog")
REPLIES, FIGURES = "reply.publisher", "reply.figures"


async def pull_and_reply(queue: Queue, credit: int, reply: bytes) -> Pull:
    """A worker with nothing to do: it answers each message at once."""
    pull: Pull | None = None

    def answer(lease: Lease) -> None:
        assert pull is not None  # noqa: S101
        queue.send(REPLIES, lease.body[:12] + reply)
        lease.ack()
        pull.grant(1)

    pull = await queue.pull(LANE, answer)
    pull.grant(credit)
    return pull


async def publish_and_wait(queue: Queue, rounds: int, in_flight: int, body: bytes) -> dict[str, float]:
    """Run all rounds; figures of this process."""
    waiting: dict[bytes, asyncio.Future[None]] = {}
    listener = await queue.listen(REPLIES, lambda reply: waiting.pop(reply[:12]).set_result(None))
    loop = asyncio.get_running_loop()
    numbers = iter(range(rounds))
    run = f"{time.time_ns():x}"

    async def client() -> None:
        for number in numbers:
            key = b"%012d" % number
            waiting[key] = future = loop.create_future()
            await queue.publish(LANE, f"{run}.{number}", key + body)
            await future

    before_s, started_at = time.process_time(), time.perf_counter()
    await asyncio.gather(*(client() for _ in range(in_flight)))
    figures = {
        "cpu_us": (time.process_time() - before_s) / rounds * 1e6,
        "rounds_per_s": rounds / (time.perf_counter() - started_at),
    }
    await listener.close()
    return figures


async def serve_pulls(url: str, credit: int, reply: bytes) -> None:
    """The puller's process: tells its CPU time whenever the publisher asks."""
    queue = await open_queue(QueueSettings(queue=url))
    await queue.listen("hello.puller", lambda _: queue.send(FIGURES, repr(time.process_time()).encode()))
    await pull_and_reply(queue, credit, reply)
    await asyncio.Event().wait()


async def ask_cpu_s(queue: Queue) -> float:
    """The puller's CPU time in seconds, asked until it is there to answer."""
    answers: asyncio.Queue[bytes] = asyncio.Queue()
    listener = await queue.listen(FIGURES, answers.put_nowait)
    try:
        for _ in itertools.count():
            queue.send("hello.puller", b"")
            try:
                return float(await asyncio.wait_for(answers.get(), 0.2))
            except TimeoutError:
                continue
        raise AssertionError
    finally:
        await listener.close()


async def fill(queue: Queue, depth: int, body: bytes) -> None:
    """Put messages into a lane that nobody pulls from."""
    run = f"{time.time_ns():x}"
    for start in range(0, depth, 256):
        numbers = range(start, min(depth, start + 256))
        await asyncio.gather(*(queue.publish(BACKLOG, f"{run}.{number}", body) for number in numbers))


async def measure_jetstream(arguments: argparse.Namespace, body: bytes) -> dict[str, Any]:
    async with Broker(port=0) as broker:
        process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--puller", broker.url, "--reply-bytes", str(arguments.reply_bytes)
        )
        queue = await open_queue(QueueSettings(queue=broker.url))
        try:
            await ask_cpu_s(queue)
            await fill(queue, arguments.depth, body)
            await publish_and_wait(queue, 500, arguments.in_flight, body)
            before_s = await ask_cpu_s(queue)
            figures = await publish_and_wait(queue, arguments.rounds, arguments.in_flight, body)
            puller_us = (await ask_cpu_s(queue) - before_s) / arguments.rounds * 1e6
        finally:
            process.terminate()
            await process.wait()
            await queue.close()
    return {
        "publisher_cpu_us": figures["cpu_us"],
        "puller_cpu_us": puller_us,
        "rounds_per_s": figures["rounds_per_s"],
    }


async def measure_memory(arguments: argparse.Namespace, body: bytes) -> dict[str, Any]:
    queue = await open_queue(QueueSettings())
    await pull_and_reply(queue, 64, b"r" * arguments.reply_bytes)
    await fill(queue, arguments.depth, body)
    await publish_and_wait(queue, 500, arguments.in_flight, body)
    figures = await publish_and_wait(queue, arguments.rounds, arguments.in_flight, body)
    await queue.close()
    return {"both_cpu_us": figures["cpu_us"], "rounds_per_s": figures["rounds_per_s"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--body-bytes", type=int, default=300)
    parser.add_argument("--reply-bytes", type=int, default=2200)
    parser.add_argument("--depth", type=int, default=0, help="messages that wait in another lane meanwhile")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--puller", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.puller:
        uvloop.run(serve_pulls(arguments.puller, 64, b"r" * arguments.reply_bytes))
        return
    body = b"b" * arguments.body_bytes
    results = {
        "memory": uvloop.run(measure_memory(arguments, body)),
        "jetstream": uvloop.run(measure_jetstream(arguments, body)),
    }
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    for name, figures in results.items():
        print(name.ljust(10), "  ".join(f"{key} {value:,.1f}" for key, value in figures.items()))


if __name__ == "__main__":
    main()
