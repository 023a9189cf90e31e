"""The load generator: sends one `Load` from this process, on one event loop, and says what came of it.

In an open loop latency runs from the moment at which a request was meant to be sent, so that a server (or a generator)
that stalls is charged for the requests that it kept from being sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import time
from collections.abc import Callable, Iterator

import msgspec
import uvloop

from shoal.bench import arrivals
from shoal.bench.connection import Connections, Reply
from shoal.bench.histogram import Histogram
from shoal.bench.plan import Arrivals, Load, Measured
from shoal.bench.targets import KINDS

__all__ = ["send_load"]


def send_load(load: Load, starts_at: float = 0.0) -> Measured:
    """Send a load and wait for its end.

    Args:
        starts_at: wall-clock time (`time.time()`) of the first arrival, so that several processes begin together.
    """
    _come_first()
    return uvloop.run(_Run(load).run(starts_at))


def _come_first() -> None:
    """Run before others where that is allowed: it takes little, and on a small machine the server has every core.

    Only from the usual priority: whoever started us with another one (`nice`) meant it.
    """
    if os.getpriority(os.PRIO_PROCESS, 0) == 0:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, -10)


class _Run:
    def __init__(self, load: Load) -> None:
        self._load = load
        self._tokens_of: Callable[[Reply], int] = KINDS[load.target.kind].tokens
        is_ranking = KINDS[load.target.kind].operation == "rerank"
        sizes = [len(texts) - is_ranking for texts in load.requests]
        self._requests: Iterator[tuple[bytes, int]] = itertools.cycle(zip(load.messages(), sizes, strict=True))
        self._measured = Measured(Histogram(), Histogram(), {})
        self._last_s = 0.0
        self._has_sent = False

    async def run(self, starts_at: float) -> Measured:
        self._loop = asyncio.get_running_loop()
        load = self._load
        limit = max(load.max_connections, load.arrivals.concurrency)
        self._connections = Connections(load.target.address, limit)
        await asyncio.sleep(max(0.0, starts_at - time.time()))
        gc.collect()
        gc.freeze()  # what was made so far lives to the end: no collection needs to look at it
        cpu_s, start = time.process_time(), time.monotonic()
        await (self._send_openly(start) if load.arrivals.is_open else self._send_in_turn(start))
        elapsed = time.monotonic() - start if self._has_sent else load.duration_s
        self._measured.seconds = max(self._last_s - start, min(load.duration_s, elapsed))
        self._measured.cpu_share = (time.process_time() - cpu_s) / elapsed
        self._measured.num_waits = self._connections.num_waits
        self._connections.close()
        return self._measured

    async def _send_openly(self, start: float) -> None:
        load = self._load
        under_way: set[asyncio.Task[None]] = set()
        for offset in _offsets(load.arrivals, load.duration_s, load.seed):
            intended = start + offset
            if (wait_s := intended - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
            sent = time.monotonic()
            self._measured.lag.add(max(0.0, sent - intended))
            # A timer may ring half a millisecond early, too; what is sent early has not waited since it was meant.
            task = self._loop.create_task(self._ask(min(intended, sent)))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        if under_way:
            await asyncio.wait(under_way)

    async def _send_in_turn(self, start: float) -> None:
        async def connection() -> None:
            while (now := time.monotonic()) < start + self._load.duration_s:
                await self._ask(now)

        await asyncio.gather(*(connection() for _ in range(self._load.arrivals.concurrency)))

    async def _ask(self, intended: float) -> None:
        """Send the next request, count what becomes of it."""
        self._has_sent = True
        message, num_items = next(self._requests)
        timeout_s = intended + self._load.timeout_s - time.monotonic()
        measured = self._measured
        try:
            reply = await self._connections.ask(message, timeout_s)
            if reply.status == 200:
                num_tokens = self._tokens_of(reply)
        except TimeoutError:
            self._fail(f"no reply within {self._load.timeout_s:g} s")
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            self._fail(f"{type(error).__name__}: {error}")
            await asyncio.sleep(0.05)  # a server that is not there is not asked in a tight loop
        else:
            self._last_s = now = time.monotonic()
            if reply.status != 200:
                self._fail(f"HTTP {reply.status}")
                return
            measured.latency.add(now - intended)
            measured.num_items += num_items
            measured.num_tokens += num_tokens

    def _fail(self, reason: str) -> None:
        self._measured.latency.fail()
        self._measured.errors[reason] = self._measured.errors.get(reason, 0) + 1


def _offsets(given: Arrivals, duration_s: float, seed: int) -> list[float]:
    if given.kind == "trace":
        return [offset for offset in given.trace if offset < duration_s]
    return arrivals.bursts(given.rate, duration_s, given.burst_size, seed)
