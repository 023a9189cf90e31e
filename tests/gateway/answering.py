"""A worker without a model: it answers with vectors that depend on the text alone, and misbehaves when told to."""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import Callable
from typing import get_args

import msgspec
import numpy as np
import orjson

from shoal.queue.base import Lease, Queue
from shoal.types import (
    Chunk,
    ChunkReply,
    Demand,
    ErrorBody,
    Lane,
    LoadedModel,
    ModelCard,
    Priority,
    Render,
    Rendered,
    StageTimes,
    WorkerStatus,
    decode_chunk,
    decode_demand,
    encode,
)

PLAIN = ModelCard(
    id="org/plain-model",
    operations=("embed",),
    dimensions=8,
    max_length=16,
    aliases=("plain",),
    prompts={"query": "q: "},
)
NESTED = ModelCard(id="org/nested", operations=("embed",), dimensions=8, max_length=64, matryoshka_dimensions=(8, 4))
MUTE = ModelCard(id="org/mute", operations=(), dimensions=1, max_length=16)
CARDS = (PLAIN, NESTED, MUTE)
TIMES = StageTimes(0.001, 0.002, 0.003, 0.004)


def vector(text: str | list[int], dimensions: int = 8) -> np.ndarray:
    """float32 [dimensions], of length 1."""
    seed = zlib.crc32(text.encode() if isinstance(text, str) else repr(text).encode())
    full = np.random.default_rng(seed).standard_normal(8)[:dimensions]
    return (full / np.linalg.norm(full)).astype("<f4")


def num_tokens(text: str | list[int]) -> int:
    return len(text.split() if isinstance(text, str) else text) + 2


class AnsweringWorker:
    """Serves `CARDS` from a queue.

    Attributes:
        chunks: every chunk seen, in order of arrival.
        held: leases not answered, while `is_holding`.
        answer: chunk to reply; replace it to misbehave.
    """

    def __init__(self, queue: Queue, worker_id: str = "w1", pool: str = "default") -> None:
        self.queue = queue
        self.worker_id = worker_id
        self.pool = pool
        self.cards = CARDS
        self.states = {card.id: "ready" for card in CARDS}
        self.failure: ErrorBody | None = None
        self.quantum_tokens = 64
        self.c_s = 0.0
        self.interval_s = 60.0
        self.chunks: list[Chunk] = []
        self.held: list[tuple[Chunk, Lease]] = []
        self.demands: list[Demand] = []
        self.is_holding = False
        self.free_bytes = 100
        self.answer: Callable[[Chunk], ChunkReply] = answer
        self.changed = asyncio.Condition()

    async def start(self) -> None:
        for card in self.cards:
            for priority in get_args(Priority):
                pull = await self.queue.pull(Lane(self.pool, card.id, priority), self._on_lease)
                pull.grant(1_000_000)
        await self.queue.listen(f"hello.{self.pool}", self._on_hello)
        await self.queue.listen(f"demand.{self.pool}", self._on_demand)
        self.announce()

    def announce(self, *, leaving: bool = False) -> None:
        models = tuple(
            LoadedModel(
                model,
                state,  # type: ignore[arg-type]
                c_s=self.c_s,
                quantum_tokens=self.quantum_tokens,
                load_s=7.0,
                error=self.failure if state == "failed" else None,
            )
            for model, state in self.states.items()
        )
        status = WorkerStatus(
            self.worker_id, self.pool, self.cards, models, interval_s=self.interval_s, leaving=leaving
        )
        self.queue.send(f"status.{self.pool}", encode(status))

    def reply(self, chunk: Chunk, lease: Lease | None = None) -> None:
        self.queue.send(chunk.reply_to, encode(self.answer(chunk)))
        if lease is not None:
            lease.ack()

    async def wait_for(self, is_true: Callable[[], bool]) -> None:
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(is_true), 20)

    def _on_lease(self, lease: Lease) -> None:
        chunk = decode_chunk(lease.body)
        self.chunks.append(chunk)
        if self.is_holding:
            self.held.append((chunk, lease))
        else:
            self.reply(chunk, lease)
        self._tell()

    def _on_hello(self, body: bytes) -> None:
        if body in (b"", self.worker_id.encode()):
            self.announce()

    def _on_demand(self, body: bytes) -> None:
        demand = decode_demand(body)
        self.demands.append(demand)
        if demand.kind == "wanted":
            bid = Demand("bid", demand.model, self.worker_id, self.free_bytes)
            self.queue.send(f"demand.{self.pool}", encode(bid))
        self._tell()

    def _tell(self) -> None:
        async def tell() -> None:
            async with self.changed:
                self.changed.notify_all()

        self._telling = asyncio.ensure_future(tell())


def answer(chunk: Chunk) -> ChunkReply:
    decode = msgspec.json.decode if chunk.items_format == "json" else msgspec.msgpack.decode
    items = decode(chunk.items)
    assert len(items) == chunk.num_items
    max_length = next(card.max_length for card in CARDS if card.id == chunk.model)
    for index, item in enumerate(items, chunk.first_item):
        if item == "poison":
            param = f"input[{index}]"
            error = ErrorBody("invalid_request", f"{param} is poison.", param)
            return ChunkReply(chunk.request_id, chunk.index, error=error)
    prompt = chunk.options.prompt or {"query": "q: "}.get(chunk.options.prompt_name or "", "")
    dimensions = chunk.options.dimensions or 8
    vectors = np.stack([vector(prompt + item if prompt else item, dimensions) for item in items])
    counts = [num_tokens(item) for item in items]
    rows, scales = store(vectors, chunk.options.dtype)
    return ChunkReply(
        request_id=chunk.request_id,
        index=chunk.index,
        outputs=[Rendered(render(rows, chunk.renders[0], chunk.first_item), dimensions, scales)],
        num_tokens=[min(count, max_length) for count in counts],
        truncated=[count > max_length for count in counts],
        times=TIMES,
    )


def store(vectors: np.ndarray, dtype: str) -> tuple[np.ndarray, list[float]]:
    if dtype == "int8":
        scales = np.abs(vectors).max(axis=1) / 127
        return np.round(vectors / scales[:, None]).astype(np.int8), scales.tolist()
    if dtype == "binary":
        return np.packbits(vectors > 0, axis=1), np.abs(vectors).mean(axis=1).tolist()
    return vectors.astype({"float32": "<f4", "float16": "<f2"}[dtype]), []


def render(rows: np.ndarray, how: Render, first_item: int) -> bytes:
    if how.encoding == "raw":
        return rows.tobytes()
    parts = []
    for index, row in enumerate(rows, first_item):
        if how.encoding == "json":
            text = orjson.dumps(np.ascontiguousarray(row), option=orjson.OPT_SERIALIZE_NUMPY)
        else:
            text = b'"' + base64.b64encode(row.tobytes()) + b'"'
        place = str(index).encode() + how.between if how.has_index else b""
        parts.append(how.before + place + text + how.after)
    return b",".join(parts)
