"""What a worker says about itself and hears from gateways: status, hello, requests that are gone, models in demand.

A gateway that wants a model which nobody has loaded asks once; every worker that could make room for it bids with the
memory that would stay free; the one that the gateway names loads it.
"""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec

from shoal.queue.base import Listener, Queue
from shoal.types import Demand, WorkerStatus, decode_demand, decode_gone, encode
from shoal.worker.residency import Residency
from shoal.worker.sidecar import Sidecar

__all__ = ["Announcer"]

logger = logging.getLogger(__name__)

INTERVAL_S = 2.0


class Announcer:
    """Speaks for one worker."""

    def __init__(self, queue: Queue, pool: str, worker_id: str, residency: Residency, sidecar: Sidecar) -> None:
        self._queue = queue
        self._pool = pool
        self._worker_id = worker_id
        self._residency = residency
        self._sidecar = sidecar
        self._listeners: list[Listener] = []
        self._timer: asyncio.TimerHandle | None = None
        self._has_left = False

    async def start(self) -> None:
        """Listen, say who we are, and again every 2 s."""
        self._listeners = [
            await self._queue.listen(f"hello.{self._pool}", lambda _: self.announce()),
            await self._queue.listen(f"demand.{self._pool}", self._hear_demand),
            await self._queue.listen(f"gone.{self._pool}", self._hear_gone),
        ]
        self._queue.on_reconnect(self.announce)
        self._tick()

    def announce(self) -> None:
        """Tell all gateways how things stand, unless we have left."""
        if not self._has_left:
            self._send_status()

    async def leave(self) -> None:
        """Say that this was the last word."""
        self._has_left = True
        if self._timer is not None:
            self._timer.cancel()
        self._send_status()
        for listener in self._listeners:
            await listener.close()

    def _tick(self) -> None:
        self.announce()
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._tick)

    def _send_status(self) -> None:
        status = WorkerStatus(
            worker_id=self._worker_id,
            pool=self._pool,
            cards=self._residency.cards,
            models=self._residency.states,
            backlog_s=sum(model.held_s for model in self._sidecar.models.values()),
            interval_s=INTERVAL_S,
            leaving=self._has_left,
            sent_at=time.time(),
        )
        self._queue.send(f"status.{self._pool}", encode(status))

    def _hear_gone(self, body: bytes) -> None:
        try:
            gone = decode_gone(body)
        except msgspec.MsgspecError:
            logger.exception("A message about requests that are gone cannot be read")
            return
        self._sidecar.forget(frozenset(gone.request_ids))

    def _hear_demand(self, body: bytes) -> None:
        try:
            demand = decode_demand(body)
        except msgspec.MsgspecError:
            logger.exception("A message on the demand address is no demand")
            return
        if demand.kind == "bid" or self._has_left:
            return
        if not self._residency.can_load(demand.model):
            self.announce()  # what we know about it is news to who asks
        elif demand.kind == "wanted":
            bid = Demand("bid", demand.model, self._worker_id, self._residency.bid(demand.model))
            self._queue.send(f"demand.{self._pool}", encode(bid))
        elif demand.worker_id == self._worker_id:
            self._residency.start_load(demand.model)
