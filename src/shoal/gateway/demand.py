"""Asks for a model that is loaded nowhere: once a model, not once a request.

The gateway says "wanted", workers that could load it bid with their free memory, the gateway names the one with most.
"""

from __future__ import annotations

import asyncio

from shoal.gateway.directory import Served
from shoal.queue.base import Address, Queue
from shoal.types import Demand, encode

__all__ = ["Demands"]

_BIDDING_S = 0.1
"""How long bids are waited for; it ends at once when every worker that could serve the model has bid."""

_ASK_AGAIN_S = 3.0
"""After this, a model that is still loaded nowhere is asked for again."""


class _Wanted:
    """One exchange: who has bid, and since when it runs."""

    def __init__(self, workers: frozenset[str], asked_at: float, timer: asyncio.TimerHandle) -> None:
        self.workers = workers
        self.asked_at = asked_at
        self.timer = timer
        self.bids: dict[str, int] = {}
        self.is_chosen = False


class Demands:
    """The demand exchanges of one gateway."""

    def __init__(self, queue: Queue, address: Address) -> None:
        self._queue = queue
        self._address = address
        self._wanted: dict[str, _Wanted] = {}

    def want(self, served: Served) -> None:
        """See to it that somebody loads the model, unless one has, is at it, or was asked a moment ago."""
        if served.is_ready or served.is_loading:
            return
        model = served.card.id
        loop = asyncio.get_running_loop()
        known = self._wanted.get(model)
        if known is not None and loop.time() - known.asked_at < _ASK_AGAIN_S:
            return
        if known is not None:
            known.timer.cancel()
        timer = loop.call_later(_BIDDING_S, self._choose, model)
        self._wanted[model] = _Wanted(served.workers, loop.time(), timer)
        self._queue.send(self._address, encode(Demand("wanted", model)))

    def hear(self, demand: Demand) -> None:
        """Take in a bid; what gateways say is not for us."""
        wanted = self._wanted.get(demand.model)
        if demand.kind != "bid" or wanted is None or wanted.is_chosen:
            return
        wanted.bids[demand.worker_id] = demand.free_bytes
        is_over = asyncio.get_running_loop().time() - wanted.asked_at >= _BIDDING_S
        if is_over or wanted.bids.keys() >= wanted.workers:
            wanted.timer.cancel()
            self._choose(demand.model)

    def close(self) -> None:
        """Stop waiting for bids."""
        for wanted in self._wanted.values():
            wanted.timer.cancel()

    def _choose(self, model: str) -> None:
        wanted = self._wanted[model]
        if not wanted.bids:
            return
        wanted.is_chosen = True
        worker_id = max(wanted.bids, key=wanted.bids.__getitem__)
        self._queue.send(self._address, encode(Demand("chosen", model, worker_id)))
