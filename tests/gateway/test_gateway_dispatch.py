"""Requests while they are open: deadlines, clients that hang up, queues that come and go, models that load."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable

import pytest

from gateway.answering import AnsweringWorker, vector
from gateway.conftest import SETTINGS, Running, Start
from shoal.errors import NotReady, Overloaded
from shoal.gateway.directory import Directory
from shoal.queue.memory import MemoryQueue
from shoal.types import ChunkReply, ErrorBody, Lane, WorkerStatus, encode


async def metric(running: Running, line: str) -> float:
    page = (await running.http.get("/metrics")).text
    return float(re.search(rf"^{re.escape(line)} (\S+)$", page, re.MULTILINE)[1])


async def test_deadline(running: Running) -> None:
    running.worker.is_holding = True
    loop = asyncio.get_running_loop()
    start = loop.time()
    reply = await running.http.post(
        "/v1/embeddings", json={"model": "plain", "input": "x"}, headers={"x-shoal-timeout": "0.15"}
    )
    assert reply.status_code == 504
    assert reply.json()["error"]["code"] == "deadline_exceeded"
    assert "0.15" in reply.json()["error"]["message"]
    assert loop.time() - start >= 0.15
    chunk, lease = running.worker.held[0]
    assert 0 < chunk.deadline - chunk.published_at <= 0.16
    running.worker.reply(chunk, lease)  # too late, and harmless
    running.worker.is_holding = False
    assert (await running.embed(input="next")).status_code == 200
    assert await metric(running, "shoal_dropped_replies_total") == 1
    line = (
        'shoal_requests_total{code="deadline_exceeded",model="org/plain-model",route="/v1/embeddings",tenant_class=""}'
    )
    assert await metric(running, line) == 1


async def test_a_client_that_hangs_up_is_forgotten(running: Running) -> None:
    running.worker.is_holding = True
    pending = asyncio.ensure_future(running.embed("/v1/embed", input="x"))
    await running.worker.wait_for(lambda: bool(running.worker.held))
    pending.cancel()
    gone = 'shoal_requests_total{code="client_gone",model="org/plain-model",route="/v1/embed",tenant_class=""}'
    for _ in range(200):
        with contextlib.suppress(TypeError):  # no such line yet
            if await metric(running, gone) == 1:
                break
    assert await metric(running, gone) == 1
    assert await metric(running, "shoal_chunks_in_flight") == 0


async def test_errors_of_workers_keep_their_status(running: Running) -> None:
    for code, status in (("overloaded", 429), ("not_ready", 503), ("context_length_exceeded", 400), ("nonsense", 500)):
        body = ErrorBody(code, "Said by the worker.", "input[0]", retry_after_s=2.4)
        running.worker.answer = lambda chunk, body=body: ChunkReply(chunk.request_id, chunk.index, error=body)
        reply = await running.embed(input="x")
        assert reply.status_code == status
        assert reply.headers["retry-after"] == "3"
        assert reply.json()["error"]["param"] == "input[0]"
        assert "Said by the worker." in reply.json()["error"]["message"]


async def test_chunks_are_about_one_quantum(running: Running) -> None:
    """Long texts count as what the model takes at most; the last chunk holds the rest."""
    await running.embed(input=["y" * 400] * 10)  # 101 tokens by bytes, at most 16 in this model; the quantum is 64
    assert [chunk.num_items for chunk in running.worker.chunks] == [4, 4, 2]
    assert [chunk.first_item for chunk in running.worker.chunks] == [0, 4, 8]
    assert running.worker.chunks[0].estimated_tokens == 64


class Small(MemoryQueue):
    """Carries 40 kB a message."""

    @property
    def max_message_bytes(self) -> int:
        return 40_000


async def test_chunks_and_replies_fit_the_queue(start_gateway: Start) -> None:
    async with start_gateway(queue=Small()) as running:
        running.worker.quantum_tokens = 10**6
        running.worker.announce()
        assert (await running.embed(input=["x" * 3000] * 10)).status_code == 200
        assert max(len(chunk.items) for chunk in running.worker.chunks) < 8000
        many = [f"{index}" for index in range(100)]
        assert len((await running.embed(input=many)).json()["data"]) == 100
        assert max(chunk.num_items for chunk in running.worker.chunks) * 8 * 25 < 8000
        too_long = await running.embed(input=["x", "y" * 9000])
        assert (too_long.status_code, too_long.json()["error"]["param"]) == (413, "input[1]")


class Losing(MemoryQueue):
    """A queue whose connection can be lost, with all that it held."""

    def __init__(self) -> None:
        super().__init__()
        self.is_lost = False
        self.has_refused = asyncio.Event()
        self.refusal: Exception = NotReady("The queue is away.")
        self.callbacks: list[Callable[[], None]] = []

    def post(self, lane: Lane, message_id: str, body: bytes, on_failure: Callable[[Exception], None]) -> None:
        if self.is_lost:
            self.has_refused.set()
            on_failure(self.refusal)
        else:
            super().post(lane, message_id, body, on_failure)

    @property
    def is_connected(self) -> bool:
        return not self.is_lost

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def come_back(self) -> None:
        self.is_lost = False
        self._published_ids.clear()
        for callback in self.callbacks:
            callback()


async def test_open_requests_are_published_again_when_the_queue_is_back(start_gateway: Start) -> None:
    queue = Losing()
    async with start_gateway(queue=queue) as running:
        running.worker.is_holding = True
        texts = [f"word {index} " * 10 for index in range(12)]
        early = asyncio.ensure_future(running.embed(input=texts))
        await running.worker.wait_for(lambda: sum(chunk.num_items for chunk, _ in running.worker.held) == 12)
        answered, lease = running.worker.held[0]
        running.worker.reply(answered, lease)
        lost = [chunk.chunk_id for chunk, _ in running.worker.held[1:]]
        running.worker.held.clear()
        queue.is_lost = True
        late = asyncio.ensure_future(running.embed(input="sent while the queue was away"))
        await queue.has_refused.wait()
        assert (await running.http.get("/readyz")).status_code == 503
        running.worker.is_holding = False
        running.worker.chunks.clear()
        queue.come_back()
        data = (await early).json()["data"]
        for text, entry in zip(texts, data, strict=True):
            assert entry["embedding"] == pytest.approx(vector(text).tolist())
        assert (await late).status_code == 200
        again = [chunk.chunk_id for chunk in running.worker.chunks]
        assert [chunk_id for chunk_id in again if chunk_id in lost] == lost
        assert answered.chunk_id not in again
        assert (await running.http.get("/readyz")).status_code == 200


async def test_a_queue_that_stays_away_is_503_at_the_deadline(start_gateway: Start) -> None:
    queue = Losing()
    async with start_gateway(queue=queue) as running:
        queue.is_lost = True
        headers = {"x-shoal-timeout": "0.1"}
        reply = await running.http.post("/v1/embeddings", json={"model": "plain", "input": "x"}, headers=headers)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "not_ready")
        assert int(reply.headers["retry-after"]) >= 1
        queue.refusal = Overloaded("Full.", retry_after_s=4)
        full = await running.embed(input=["a " * 40] * 20)
        assert (full.status_code, full.headers["retry-after"]) == (429, "4")


async def test_a_publish_that_hangs_does_not_outlive_the_deadline(start_gateway: Start) -> None:
    class Hanging(MemoryQueue):
        def post(self, lane: Lane, message_id: str, body: bytes, on_failure: Callable[[Exception], None]) -> None:
            """Take it and forget it."""

    async with start_gateway(queue=Hanging()) as running:
        headers = {"x-shoal-timeout": "0.1"}
        for texts in ("x", ["a " * 40] * 20):
            reply = await running.http.post("/v1/embed", json={"model": "plain", "input": texts}, headers=headers)
            assert reply.status_code == 504


async def test_strange_messages_are_survived(running: Running) -> None:
    running.worker.is_holding = True
    pending = asyncio.ensure_future(running.embed(input="x"))
    await running.worker.wait_for(lambda: bool(running.worker.held))
    chunk, lease = running.worker.held[0]
    for body in (b"", b"\xc1", encode(ChunkReply(chunk.request_id, 7)), encode(ChunkReply("nobody's", 0))):
        running.queue.send(chunk.reply_to, body)
    for address in ("status.default", "demand.default"):
        running.queue.send(address, b"\xc1")
    running.worker.reply(chunk, lease)
    assert (await pending).status_code == 200


async def test_cold_model_is_asked_for_once(running: Running) -> None:
    """The worker with most room is chosen; waiting requests are answered when the model is there."""
    worker, roomier = running.worker, AnsweringWorker(running.queue, "w2")
    roomier.free_bytes, roomier.interval_s = 200, 60.0
    for each in (worker, roomier):
        each.states = {"org/plain-model": "ready"}
    await roomier.start()
    worker.announce()
    worker.is_holding = roomier.is_holding = True
    assert (await running.http.get("/v1/models/org/nested")).json()["state"] == "cold"
    pending = [asyncio.ensure_future(running.embed(model="org/nested", input=f"text {i}")) for i in range(20)]
    await worker.wait_for(lambda: any(demand.kind == "chosen" for demand in worker.demands))
    held = worker.held + roomier.held
    assert [demand.kind for demand in worker.demands].count("wanted") == 1
    assert [demand.worker_id for demand in worker.demands if demand.kind == "chosen"] == ["w2"]
    roomier.states["org/nested"] = "ready"
    roomier.announce()
    worker.is_holding = roomier.is_holding = False
    for chunk, lease in held:
        roomier.reply(chunk, lease)
    assert {reply.status_code for reply in await asyncio.gather(*pending)} == {200}


async def test_a_model_whose_only_worker_left_is_asked_for_again(running: Running) -> None:
    """Its requests wait in a lane that nobody pulls until another worker loads it."""
    leaver, stayer = running.worker, AnsweringWorker(running.queue, "w2")
    stayer.states = {}
    leaver.is_holding = stayer.is_holding = True
    await stayer.start()
    waiting = asyncio.ensure_future(running.embed(model="org/nested", input="x"))
    await leaver.wait_for(lambda: bool(leaver.held or stayer.held))
    leaver.announce(leaving=True)
    await stayer.wait_for(lambda: any(demand.kind == "chosen" for demand in stayer.demands))
    assert "org/nested" in {demand.model for demand in stayer.demands}
    stayer.reply(*(leaver.held or stayer.held)[0])
    assert (await waiting).status_code == 200


async def test_a_model_that_loads_too_long_is_503_with_the_time_left(running: Running) -> None:
    running.worker.is_holding = True
    running.worker.states["org/nested"] = "loading"
    running.worker.announce()
    headers = {"x-shoal-timeout": "0.1"}
    reply = await running.http.post("/v1/embeddings", json={"model": "org/nested", "input": "x"}, headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "not_ready")
    assert 5 <= int(reply.headers["retry-after"]) <= 7  # the worker says that loading takes 7 s


async def test_a_model_that_cannot_load_fails_at_once(running: Running) -> None:
    running.worker.is_holding = True
    running.worker.states["org/nested"] = "loading"
    running.worker.announce()
    waiting = asyncio.ensure_future(running.embed(model="org/nested", input="x"))
    await running.worker.wait_for(lambda: bool(running.worker.held))
    running.worker.failure = ErrorBody("model_refused", "config.json: hidden_act is odd.", "hidden_act")
    running.worker.states["org/nested"] = "failed"
    running.worker.announce()
    for reply in (await waiting, await running.embed(model="org/nested", input="y")):
        assert (reply.status_code, reply.json()["error"]["code"]) == (422, "model_refused")
    running.worker.is_holding = False
    assert (await running.embed(input="other models live")).status_code == 200


async def test_workers_come_and_go(running: Running) -> None:
    second = AnsweringWorker(running.queue, "w2")
    second.cards = (second.cards[1],)
    second.states = {"org/nested": "ready"}
    await second.start()
    running.worker.announce(leaving=True)
    headers = {"x-shoal-timeout": "0.05"}
    body = {"model": "plain", "input": "x"}
    gone = await running.http.post("/v1/embeddings", json=body, headers=headers)
    assert (gone.status_code, gone.json()["error"]["code"]) == (503, "not_ready")
    assert (await running.embed(model="org/other", input="x")).status_code == 404
    assert (await running.embed(model="org/nested", input="x")).status_code == 200
    second.announce(leaving=True)
    body["model"] = "org/nested"
    nobody = await running.http.post("/v1/embeddings", json=body, headers=headers)
    assert (nobody.status_code, nobody.json()["error"]["code"]) == (503, "not_ready")
    assert (await running.http.get("/readyz")).status_code == 503
    running.worker.announce()
    assert (await running.embed(input="x")).status_code == 200
    assert (await running.http.get("/readyz")).status_code == 200


async def test_a_worker_of_whose_announcements_one_was_missed_is_asked_for_the_whole(running: Running) -> None:
    cards, hellos = running.worker.cards, asyncio.Queue[bytes]()
    running.worker.announce(leaving=True)
    await running.queue.listen("hello.default", hellos.put_nowait)
    running.queue.send("status.default", encode(WorkerStatus("w2", "default", (), (), since=7, revision=8)))
    assert await asyncio.wait_for(hellos.get(), 20) == b"w2"
    assert (await running.http.get("/readyz")).status_code == 503
    running.queue.send("status.default", encode(WorkerStatus("w2", "default", cards, (), revision=8)))
    await asyncio.wait_for(running.gateway.wait_until_ready(), 20)
    assert running.gateway.model_names == sorted(card.id for card in cards)


async def test_silent_workers_expire(running: Running) -> None:
    running.worker.interval_s = 0.05
    running.worker.announce()
    async with asyncio.timeout(5):
        while (await running.http.get("/readyz")).status_code == 200:
            pass
    headers = {"x-shoal-timeout": "0.05"}
    reply = await running.http.post("/v1/embeddings", json={"model": "plain", "input": "x"}, headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "not_ready")


async def test_requests_wait_for_a_worker_to_announce_itself(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the gateway is new, or the only worker restarts; a model that nobody serves is told from one to come."""
    is_waiting = asyncio.Event()
    may_come = Directory._may_come

    def spy(directory: Directory, name: str) -> bool:
        is_waiting.set()
        return may_come(directory, name)

    monkeypatch.setattr(Directory, "_may_come", spy)
    for name, status in (("plain", 200), ("org/never-heard-of", 404)):
        running.worker.announce(leaving=True)
        async with asyncio.timeout(20):
            while (await running.http.get("/readyz")).status_code == 200:
                pass
        is_waiting.clear()
        pending = asyncio.ensure_future(running.embed(model=name, input="x"))
        await is_waiting.wait()
        assert not pending.done()
        running.worker.announce()
        assert (await pending).status_code == status


async def test_stopping_answers_what_is_open(start_gateway: Start) -> None:
    async with start_gateway(SETTINGS) as running:
        running.worker.is_holding = True
        pending = asyncio.ensure_future(running.embed(input="x"))
        await running.worker.wait_for(lambda: bool(running.worker.held))
        stopping = asyncio.ensure_future(running.server.stop(5.0))
        running.worker.reply(*running.worker.held[0])
        assert (await pending).status_code == 200
        await stopping
