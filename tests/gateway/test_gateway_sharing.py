"""Who is let in, who goes first and who is told to come again: a gateway whose worker holds all that it gets."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.conftest import SETTINGS, Running, Start
from shoal.gateway import supply
from shoal.gateway.keys import keyfile
from shoal.types import decode_gone

TEXT = "y" * 64
"""16 tokens by the gateway's estimate, as much as the model takes."""


KEYS = {tenant: keyfile.new_key() for tenant in ("own", "flood", "quiet", "batch")}
"""Key and its id, by tenant."""


@pytest.fixture
async def slow(start_gateway: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """A worker that says it does 1,000 tokens a second, in batches of 64; so the window is 178 tokens."""
    monkeypatch.setattr(supply, "TRUSTED_S", 1e9)  # it holds what it gets, which is no measure
    keys = tmp_path / "keys.jsonl"
    for tenant, (key, key_id) in KEYS.items():
        most_urgent = "bulk" if tenant == "batch" else "interactive"
        keyfile.add(keys, keyfile.Key(key_id, keyfile.digest_of(key.encode()), tenant, priority=most_urgent))
    async with start_gateway(dataclasses.replace(SETTINGS, keys_file=str(keys))) as running:
        running.http.headers["authorization"] = f"Bearer {KEYS['own'][0]}"
        running.worker.c_s = 0.001
        running.worker.is_holding = True
        running.worker.announce()
        yield running
        running.worker.is_holding = False
        for chunk, lease in running.worker.held:
            running.worker.reply(chunk, lease)


def ask(running: Running, text: Any = TEXT, tenant: str = "own", **headers: str) -> asyncio.Task[httpx.Response]:
    body = {"model": "plain", "input": text}
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    given["authorization"] = f"Bearer {KEYS[tenant][0]}"
    return asyncio.ensure_future(running.http.post("/v1/embeddings", json=body, headers=given))


async def until(is_true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await is_true():
            pass


async def fill(running: Running, num_requests: int, tenant: str = "own") -> list[asyncio.Task[httpx.Response]]:
    """So many requests inside the gateway; returns once they are."""
    tasks = [ask(running, tenant=tenant) for _ in range(num_requests)]
    dispatch = running.gateway._dispatch
    before = len(dispatch._open)

    async def are_in() -> bool:
        await running.http.get("/livez")
        return len(dispatch._open) + sum(task.done() for task in tasks) == before + num_requests

    await until(are_in)
    return tasks


async def answer_all(running: Running) -> None:
    """The worker goes on."""
    running.worker.is_holding = False
    held, running.worker.held[:] = running.worker.held[:], []
    for chunk, lease in held:
        running.worker.reply(chunk, lease)


async def test_only_a_window_is_on_its_way(slow: Running) -> None:
    tasks = await fill(slow, 30)
    assert 178 <= sum(chunk.estimated_tokens for chunk in slow.worker.chunks) <= 178 + 16
    await answer_all(slow)
    assert {reply.status_code for reply in await asyncio.gather(*tasks)} == {200}
    assert len(slow.worker.chunks) == 30


async def test_who_would_wait_too_long_is_told_when_to_come_again(slow: Running) -> None:
    """String and one-element list alike; and whoever has more time is let in."""
    tasks = await fill(slow, 100)  # 1.6 s of work
    for text in (TEXT, [TEXT]):
        refused = await ask(slow, text, x_shoal_timeout="2")
        assert refused.status_code == 429, refused.text
        assert refused.json()["error"]["code"] == "overloaded"
        assert refused.headers["retry-after"] == "1"
        assert "X-Shoal-Timeout" in refused.text
    patient = ask(slow, x_shoal_timeout="20")
    await answer_all(slow)
    assert {reply.status_code for reply in await asyncio.gather(*tasks, patient)} == {200}
    assert len(slow.worker.chunks) == 101
    assert (await ask(slow, x_shoal_timeout="2")).status_code == 200


async def test_the_setting_bounds_the_wait_of_the_most_patient(
    start_gateway: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supply, "TRUSTED_S", 1e9)
    async with start_gateway(dataclasses.replace(SETTINGS, max_wait_s=0.5)) as running:
        running.worker.c_s = 0.001
        running.worker.is_holding = True
        running.worker.announce()
        replies = await fill(running, 100)
        refused = [reply.result() for reply in replies if reply.done()]
        assert {reply.status_code for reply in refused} == {429}
        assert 50 <= len(refused) <= 80
        await answer_all(running)
        assert [reply.status_code for reply in await asyncio.gather(*replies)].count(200) == 100 - len(refused)


async def test_it_is_refused_before_its_body_is_read(slow: Running) -> None:
    tasks = await fill(slow, 100)
    slow.worker.cards = slow.worker.cards[:1]  # no other model that the body might name
    slow.worker.announce()
    await until(lambda: _serves(slow, 1))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(slow.url.rpartition(":")[2]))
    head = "POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n"
    head += f"authorization: Bearer {KEYS['own'][0]}\r\n"
    writer.write(f"{head}x-shoal-timeout: 2\r\n\r\n".encode())
    assert (await asyncio.wait_for(reader.readline(), 20)).startswith(b"HTTP/1.1 429")
    writer.close()
    await answer_all(slow)
    assert {reply.status_code for reply in await asyncio.gather(*tasks)} == {200}


async def _serves(running: Running, num_models: int) -> bool:
    return len((await running.http.get("/v1/models")).json()["data"]) == num_models


async def test_an_idle_server_takes_any_list_within_the_limits(slow: Running) -> None:
    """Even one that it can hardly do in time."""
    await answer_all(slow)
    reply = await ask(slow, [f"{index} {TEXT}" for index in range(100)], x_shoal_timeout="1.5")
    assert reply.status_code == 200, reply.text


async def test_what_waits_past_its_deadline_is_never_published(slow: Running) -> None:
    tasks = await fill(slow, 15)
    late = await ask(slow, "too late", x_shoal_timeout="0.9")
    assert (late.status_code, late.json()["error"]["code"]) == (504, "deadline_exceeded")
    await answer_all(slow)
    assert {reply.status_code for reply in await asyncio.gather(*tasks)} == {200}
    assert (await ask(slow)).status_code == 200
    assert not [chunk for chunk in slow.worker.chunks if b"too late" in chunk.items]


async def test_who_leaves_is_never_published_or_workers_are_told(slow: Running) -> None:
    gone: list[str] = []
    await slow.queue.listen("gone.default", lambda body: gone.extend(decode_gone(body).request_ids))
    published = await fill(slow, 12)
    waiting = await fill(slow, 12)
    stayer = ask(slow, "stays")
    on_their_way = {chunk.request_id for chunk in slow.worker.chunks}
    assert len(on_their_way) == 12
    for task in waiting:
        task.cancel()
    await until(lambda: _are_open(slow, 13))
    for task in published:
        task.cancel()
    await until(lambda: _are_told(slow, gone, 12))
    assert set(gone) == on_their_way
    await slow.worker.wait_for(lambda: b"stays" in slow.worker.chunks[-1].items)
    await answer_all(slow)
    assert (await stayer).status_code == 200
    assert len(slow.worker.chunks) == 13


async def _are_open(running: Running, num_requests: int) -> bool:
    await running.http.get("/livez")
    return len(running.gateway._dispatch._open) == num_requests


async def test_a_quiet_tenant_does_not_wait_for_a_flood(slow: Running) -> None:
    """Its text goes at once though the window is full; a request beyond its share waits for its turn, not for all."""
    flood = await fill(slow, 100, tenant="flood")
    first = ask(slow, "first of the quiet", tenant="quiet")
    await slow.worker.wait_for(lambda: b"first of the quiet" in slow.worker.chunks[-1].items)
    assert slow.worker.chunks[-1].tenant == "quiet"
    assert slow.worker.chunks[-1].priority == "interactive"
    assert (await ask(slow, tenant="flood", x_shoal_timeout="2")).status_code == 429
    long = ask(slow, [f"{TEXT} {index}" for index in range(8)], tenant="quiet", x_shoal_timeout="5")
    await until(lambda: _are_open(slow, 102))
    await answer_all(slow)
    assert {reply.status_code for reply in await asyncio.gather(*flood, first, long)} == {200}
    places = [place for place, chunk in enumerate(slow.worker.chunks) if chunk.tenant == "quiet"]
    assert max(places) < 70


async def test_priorities(slow: Running) -> None:
    """What is on its way in a lower lane takes no room from a higher one; what waits goes by lane."""
    kinds = {name: ask(slow, f"{name} {TEXT}", x_shoal_priority=name) for name in ("bulk", "default", "Interactive")}
    await slow.worker.wait_for(lambda: len(slow.worker.chunks) == 3)
    assert sorted(chunk.priority for chunk in slow.worker.chunks) == ["bulk", "default", "interactive"]
    humble = ask(slow, f"humble {TEXT}", tenant="batch", x_shoal_priority="interactive")
    await slow.worker.wait_for(lambda: len(slow.worker.chunks) == 4)
    assert slow.worker.chunks[-1].priority == "bulk"
    bulk = [ask(slow, x_shoal_priority="bulk") for _ in range(40)]
    await slow.worker.wait_for(lambda: len(slow.worker.chunks) > 9)
    urgent = ask(slow, "urgent", x_shoal_priority="interactive")
    await slow.worker.wait_for(lambda: b"urgent" in slow.worker.chunks[-1].items)
    await answer_all(slow)
    assert {reply.status_code for reply in await asyncio.gather(*kinds.values(), *bulk, urgent, humble)} == {200}
    wrong = await ask(slow, x_shoal_priority="urgent")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "X-Shoal-Priority")
    assert "interactive, default, bulk" in wrong.json()["error"]["message"]


async def test_a_failed_chunk_frees_the_rest_of_its_request(slow: Running) -> None:
    gone: list[str] = []
    await slow.queue.listen("gone.default", lambda body: gone.extend(decode_gone(body).request_ids))
    pending = ask(slow, ["poison", *[f"{index} {TEXT}" for index in range(60)]])
    await slow.worker.wait_for(lambda: len(slow.worker.held) >= 2)
    on_their_way = len(slow.worker.held)
    slow.worker.reply(*slow.worker.held[0])
    assert (await pending).status_code == 400
    await until(lambda: _are_told(slow, gone, 1))
    await answer_all(slow)
    assert (await ask(slow)).status_code == 200
    assert len(slow.worker.chunks) <= on_their_way + 2


async def _are_told(running: Running, gone: list[str], num_requests: int) -> bool:
    await running.http.get("/livez")
    return len(gone) == num_requests
