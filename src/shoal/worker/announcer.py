"""What a worker says about itself and hears from gateways: status, hello, requests that are gone, models in demand.

What has changed is told at once, but not more often than gateways can use it; the whole only to who says hello: with a
thousand models it is a thousand times as much. A gateway that wants a model which nobody has loaded asks once; every
worker that could make room for it bids with the memory that would stay free; the one that the gateway names loads it.
"""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec

from shoal.queue.alarm import Alarm
from shoal.queue.base import Listener, Queue
from shoal.types import Demand, LoadedModel, ModelCard, WorkerStatus, decode_demand, decode_gone, encode
from shoal.worker.residency import Residency
from shoal.worker.sidecar import Sidecar

__all__ = ["Announcer"]

logger = logging.getLogger(__name__)

INTERVAL_S = 2.0

PAUSE_S = 0.05
"""Between two announcements: a thousand models that load one after another are told in some dozens of messages."""

MODELS_IN_A_PART = 100
"""A card may have thousands of labels, and a message has a largest size."""


class Announcer:
    """Speaks for one worker."""

    def __init__(self, queue: Queue, pool: str, worker_id: str, residency: Residency, sidecar: Sidecar) -> None:
        self._queue = queue
        self._pool = pool
        self._worker_id = worker_id
        self._residency = residency
        self._sidecar = sidecar
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Listener] = []
        self._alarm = Alarm(self._tell)
        self._told_at = 0.0
        self._told: dict[str, LoadedModel] = {}
        self._revision = time.time_ns() // 1000
        self._has_left = False

    async def start(self) -> None:
        """Listen, say who we are, and again every 2 s."""
        self._listeners = [
            await self._queue.listen(f"hello.{self._pool}", self._hear_hello),
            await self._queue.listen(f"demand.{self._pool}", self._hear_demand),
            await self._queue.listen(f"gone.{self._pool}", self._hear_gone),
        ]
        self._queue.on_reconnect(self.announce)
        self._tell_all()

    def announce(self) -> None:
        """Tell all gateways what has changed, in a moment, unless we have left."""
        if not self._has_left and self._told_at:
            self._alarm.set(self._told_at + PAUSE_S)

    async def leave(self) -> None:
        """Say that this was the last word."""
        self._has_left = True
        self._alarm.clear()
        self._send(leaving=True)
        for listener in self._listeners:
            await listener.close()

    def _tell(self) -> None:
        """Say what has changed; that there is nothing new is a sign of life."""
        since = self._revision
        news, unloaded = self._look()
        self._send(news, unloaded=unloaded, since=since)
        self._wait()

    def _tell_all(self) -> None:
        if self._has_left:
            return
        self._look()
        cards = self._residency.cards
        starts = range(0, max(1, len(cards)), MODELS_IN_A_PART)
        for part, start in enumerate(starts):
            some = cards[start : start + MODELS_IN_A_PART]
            states = tuple([self._told[card.id] for card in some if card.id in self._told])
            self._send(states, some, part=part, num_parts=len(starts))
        self._wait()

    def _look(self) -> tuple[tuple[LoadedModel, ...], tuple[str, ...]]:
        """States that have changed since we looked last, and ids of models that have none any more."""
        states = {state.id: state for state in self._residency.states}
        news = tuple([state for id, state in states.items() if self._told.get(id) != state])
        unloaded = tuple(self._told.keys() - states.keys())
        self._told = states
        if news or unloaded:
            self._revision += 1
        return news, unloaded

    def _wait(self) -> None:
        self._told_at = self._loop.time()
        self._alarm.clear()
        self._alarm.set(self._told_at + INTERVAL_S)

    def _send(
        self,
        states: tuple[LoadedModel, ...] = (),
        cards: tuple[ModelCard, ...] = (),
        *,
        unloaded: tuple[str, ...] = (),
        since: int = 0,
        part: int = 0,
        num_parts: int = 1,
        leaving: bool = False,
    ) -> None:
        status = WorkerStatus(
            worker_id=self._worker_id,
            pool=self._pool,
            cards=cards,
            models=states,
            backlog_s=sum(model.held_s for model in self._sidecar.models.values() if model.held_tokens),
            interval_s=INTERVAL_S,
            leaving=leaving,
            sent_at=time.time(),
            revision=self._revision,
            since=since,
            unloaded=unloaded,
            part=part,
            num_parts=num_parts,
        )
        self._queue.send(f"status.{self._pool}", encode(status))

    def _hear_hello(self, body: bytes) -> None:
        """Somebody wants to know all, of all workers or of the one that it names."""
        if not body or body == self._worker_id.encode():
            self._tell_all()

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
            self.announce()  # what we know about it is news to who asks: the revision says so
        elif demand.kind == "wanted":
            bid = Demand("bid", demand.model, self._worker_id, self._residency.bid(demand.model))
            self._queue.send(f"demand.{self._pool}", encode(bid))
        elif demand.worker_id == self._worker_id:
            self._residency.start_load(demand.model)
