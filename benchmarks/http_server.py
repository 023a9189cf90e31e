"""What the HTTP side costs a request: the gateway over the queue in memory, with a worker that answers at once.

    python benchmarks/http_server.py [uvicorn] [granian]     (granian: pip install granian)

32 keep-alive connections send single texts from a process of their own. CPU is all that the server's process used, the
stand-in for a worker included; requests/s depends on how the load shares the machine's cores with it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import resource
import sys
import time
from typing import Any

import uvloop

from shoal.gateway import Gateway
from shoal.gateway.server import Server
from shoal.queue.base import Lease
from shoal.queue.memory import MemoryQueue
from shoal.settings import GatewaySettings, QueueSettings
from shoal.types import ChunkReply, Lane, LoadedModel, ModelCard, Rendered, WorkerStatus, decode_chunk, encode

CARD = ModelCard(id="org/model", operations=("embed",), dimensions=384, max_length=256)
VECTOR = b"[" + b",".join([b"0.0123456789"] * CARD.dimensions) + b"]"
TEXT = "The quick brown fox jumps over the lazy dog near the river bank on a quiet morning. " * 2
CONNECTIONS = 32


async def answer_at_once(queue: MemoryQueue) -> None:
    """A worker that does nothing but reply."""

    def on_lease(lease: Lease) -> None:
        chunk = decode_chunk(lease.body)
        how = chunk.renders[0]
        body = b"%b0%b%b%b" % (how.before, how.between, VECTOR, how.after)
        reply = ChunkReply(chunk.request_id, chunk.index, [Rendered(body, CARD.dimensions)], [28], [False])
        queue.send(chunk.reply_to, encode(reply))
        lease.ack()

    pull = await queue.pull(Lane("default", CARD.id), on_lease)
    pull.grant(10**9)
    status = WorkerStatus("worker", "default", (CARD,), (LoadedModel(CARD.id, "ready"),), interval_s=600.0)
    queue.send("status.default", encode(status))


async def start_uvicorn(app: Any) -> int:
    return await Server(app, GatewaySettings(port=0)).start()


async def start_granian(app: Any) -> int:
    embedded = importlib.import_module("granian.server.embed")
    port = 18731
    server = embedded.Server(
        app, port=port, interface="asgi", http="1", websockets=False, log_enabled=False, backlog=1024
    )
    start_granian.serving = asyncio.ensure_future(server.serve())  # type: ignore[attr-defined]
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return port


async def load(port: int, num_requests: int) -> None:
    """Requests one after another on each connection; every reply is checked for its status and read to its end."""
    body = b'{"model":"org/model","input":"%b","encoding_format":"float"}' % TEXT.encode()
    head = b"POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\nuser-agent: load\r\n"
    head += b"authorization: Bearer none\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(num_requests // CONNECTIONS):
            writer.write(head + body)
            reply = (await reader.readuntil(b"\r\n\r\n")).lower()
            if b" 200 " not in reply[:20]:
                raise RuntimeError(reply.decode())
            length = reply.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0]
            await reader.readexactly(int(length))
        writer.close()

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(server: str, num_requests: int, rounds: int) -> None:
    queue = MemoryQueue()
    gateway = Gateway(queue, GatewaySettings(), QueueSettings())
    await gateway.start()
    await answer_at_once(queue)
    await gateway.wait_until_ready()
    port = await {"uvicorn": start_uvicorn, "granian": start_granian}[server](gateway.app)
    for _ in range(rounds):
        before, start = cpu_s(), time.perf_counter()
        arguments = [sys.executable, __file__, "--load", str(port), "--requests", str(num_requests)]
        process = await asyncio.create_subprocess_exec(*arguments)
        if await process.wait():
            raise SystemExit("the load failed")
        wall_s = time.perf_counter() - start
        cpu_us = (cpu_s() - before) / num_requests * 1e6
        print(f"{server:8} {cpu_us:6.1f} us CPU a request   {num_requests / wall_s:7.0f} requests/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers", nargs="*", default=["uvicorn"])
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", type=int, metavar="PORT", help="be the client of a server that runs")
    arguments = parser.parse_args()
    if arguments.load:
        uvloop.run(load(arguments.load, arguments.requests))
        return
    for server in arguments.servers:
        child = os.fork()
        if child == 0:
            uvloop.run(measure(server, arguments.requests, arguments.rounds))
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
