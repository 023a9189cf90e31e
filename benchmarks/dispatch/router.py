"""A plain router of our own: round robin, shortest queue on polled load, hashing by model with bounded loads.

    python -m benchmarks.dispatch.router POLICY PORT URL...

What it knows of a worker's load is what it has in flight there; the polled policy sees that as of up to 100 ms ago.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import time
import zlib
from collections.abc import Callable
from typing import Any

import uvicorn

from shoal.bench.connection import Address, Connections, message

POLLED_S = 0.1
BOUND = 1.25
_MODEL = re.compile(rb'"model"\s*:\s*"([^"]*)"')


class Router:
    """An ASGI application that forwards each POST to a worker."""

    def __init__(self, policy: str, urls: list[str]) -> None:
        self._addresses = [Address.of(url) for url in urls]
        self._choose: Callable[[bytes], int] = getattr(self, f"_{policy}")
        self._held = [0] * len(urls)
        self._polled, self._polled_at = list(self._held), 0.0
        self._turn = itertools.cycle(range(len(urls)))
        self._chooser = random.Random(0)  # noqa: S311
        self._upstreams: list[Connections] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if not self._upstreams:
            self._upstreams = [Connections(address, 1024) for address in self._addresses]
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        place = self._choose(body)
        headers = {"content-type": "application/json"}
        request = message(self._addresses[place], scope["method"], scope["path"], headers, body)
        self._held[place] += 1
        try:
            reply = await self._upstreams[place].ask(request, 60.0)
        finally:
            self._held[place] -= 1
        await send({"type": "http.response.start", "status": reply.status, "headers": [
            (b"content-type", b"application/json"), (b"content-length", b"%d" % len(reply.body))]})  # fmt: skip
        await send({"type": "http.response.body", "body": reply.body})

    def _round_robin(self, body: bytes) -> int:
        return next(self._turn)

    def _shortest_polled(self, body: bytes) -> int:
        if time.monotonic() - self._polled_at >= POLLED_S:
            self._polled, self._polled_at = list(self._held), time.monotonic()
        least = min(self._polled)
        return self._chooser.choice([place for place, held in enumerate(self._polled) if held == least])

    def _bounded_hash(self, body: bytes) -> int:
        found = _MODEL.search(body)
        start = zlib.crc32(found[1] if found else b"") % len(self._held)
        most = BOUND * (sum(self._held) + 1) / len(self._held)
        places = (place % len(self._held) for place in range(start, start + len(self._held)))
        return next(place for place in places if self._held[place] < most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policy", choices=["round_robin", "shortest_polled", "bounded_hash"])
    parser.add_argument("port", type=int)
    parser.add_argument("urls", nargs="+")
    options = parser.parse_args()
    app: Any = Router(options.policy, options.urls)
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning", access_log=False, lifespan="off")


if __name__ == "__main__":
    main()
