"""One worker with a real runtime host behind a queue in memory, and what a gateway would do with it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.adapters import open_adapter
from shoal.catalog import fake_spec
from shoal.gateway.announced import Announced
from shoal.queue.base import Queue
from shoal.queue.memory import MemoryQueue
from shoal.runtimes.fake import fake_vector
from shoal.settings import QueueSettings, WorkerSettings
from shoal.types import (
    Chunk,
    ChunkReply,
    Demand,
    EmbedOptions,
    Lane,
    Render,
    WorkerStatus,
    decode_demand,
    decode_reply,
    decode_status,
    encode,
)
from shoal.worker import Worker

__all__ = ["SPEC", "Station", "expected", "vectors"]

SPEC = fake_spec("fake:demo")
LANE = Lane("default", SPEC.id)


class Station:
    """A queue, a worker on it, and the replies and announcements that came.

    Args:
        queue: in memory if not given.
        fake: options of the fake runtime.
        settings: of the worker.

    Attributes:
        launched: set once the device was given a batch of requests.
    """

    def __init__(
        self, *, queue: Queue | None = None, lease_s: float = 10.0, max_deliveries: int = 5, **settings: Any
    ) -> None:
        fake = settings.pop("fake", {})
        self.queue: Queue = queue or MemoryQueue(lease_s=lease_s)
        self.queue_settings = QueueSettings(lease_s=lease_s, max_deliveries=max_deliveries)
        self.settings = WorkerSettings(runtime="fake", runtime_options=json.dumps(fake), **settings)
        self.statuses: list[WorkerStatus] = []
        self._announced = Announced("worker")
        self.demands: list[Demand] = []
        self._replies: dict[tuple[str, int], asyncio.Future[ChunkReply]] = {}
        self.launched = asyncio.Event()
        self._heard = asyncio.Event()
        self._num_asked = 0

    async def start(self, *specs: Any, preload: Sequence[str] = (SPEC.id,)) -> Worker:
        await self.queue.listen("reply.test", self._on_reply)
        await self.queue.listen("status.default", lambda body: self._hear_status(decode_status(body)))
        await self.queue.listen("demand.default", lambda body: self._hear(self.demands, decode_demand(body)))
        self.worker = Worker(self.queue, specs or [SPEC], self.settings, self.queue_settings, preload=preload)
        await self.worker.start()
        await self.worker.wait_ready()
        await self.heard(lambda: self.statuses and self.ready == self.worker.residency.ready_ids)
        launch = self.worker.sidecar._launch
        self.worker.sidecar._launch = lambda batch: (launch(batch), self.launched.set())  # type: ignore[method-assign]
        return self.worker

    async def close(self) -> None:
        await self.worker.drain()
        await self.queue.close()

    async def ask(self, items: Sequence[Any] | bytes, options: EmbedOptions | None = None, **fields: Any) -> ChunkReply:
        """Publish one chunk and wait for its reply."""
        self._num_asked += 1
        body = items if isinstance(items, bytes) else json.dumps(items).encode()
        chunk = Chunk(
            index=0,
            options=options or EmbedOptions(),
            items=body,
            estimated_tokens=len(body) // 4,
            reply_to="reply.test",
            **{
                "request_id": f"request-{self._num_asked}",
                "model": SPEC.id,
                "items_format": "json",
                "num_items": 1 if isinstance(items, bytes) else len(items),
                "first_item": 0,
                "renders": (Render("raw"),),
                "deadline": time.time() + 60,
                **fields,
            },
        )
        future = self._replies[chunk.request_id, 0] = asyncio.get_running_loop().create_future()
        await self.queue.publish(Lane("default", chunk.model, chunk.priority), chunk.chunk_id, encode(chunk))
        return await future

    def ask_soon(self, items: Sequence[Any] | bytes, *args: Any, **fields: Any) -> asyncio.Task[ChunkReply]:
        return asyncio.create_task(self.ask(items, *args, **fields))

    async def heard(self, is_it: Callable[[], Any]) -> Any:
        """Wait until announcements make `is_it()` true; returns it."""
        while not (found := is_it()):
            self._heard.clear()
            await self._heard.wait()
        return found

    @property
    def ready(self) -> set[str]:
        """Models that are ready as the last status says."""
        return {model.id for model in self.statuses[-1].models if model.state == "ready"}

    def state(self, model: str = SPEC.id) -> str:
        """What the last status says of a model."""
        states = {model.id: model.state for model in self.statuses[-1].models} if self.statuses else {}
        return states.get(model, "")

    def _on_reply(self, body: bytes) -> None:
        reply = decode_reply(body)
        self._replies[reply.request_id, reply.index].set_result(reply)  # a second reply raises

    def _hear_status(self, status: WorkerStatus) -> None:
        """Log it as if each announcement were the whole."""
        news = self._announced.hear(status, 0.0)
        assert news is not None, "an announcement is missing"
        cards, models = tuple(self._announced.cards.values()), tuple(self._announced.states.values())
        self._hear(self.statuses, msgspec.structs.replace(status, cards=cards, models=models))

    def _hear(self, log: list[Any], message: Any) -> None:
        log.append(message)
        self._heard.set()


def vectors(reply: ChunkReply, dtype: str = "<f4") -> npt.NDArray[Any]:
    assert reply.error is None, reply.error
    return np.frombuffer(reply.outputs[0].body, dtype).reshape(len(reply.num_tokens), -1)


def expected(*items: str | list[int], spec: Any = SPEC) -> npt.NDArray[np.float32]:
    """The one right answer to these items."""
    prepared = open_adapter(spec).prepare(items, EmbedOptions())
    return np.stack([fake_vector(item.token_ids, spec.dimensions) for item in prepared])
