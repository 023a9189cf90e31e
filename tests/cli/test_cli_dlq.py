"""`shoal dlq` against a real broker and a real worker that gave something up."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from shoal.cli.root import cli
from shoal.queue import open_queue
from shoal.queue.broker import Broker
from shoal.settings import QueueSettings
from worker.station import LANE, SPEC, Station


async def shoal(url: str, *arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, cli, ["dlq", *arguments, "--queue", url])


async def worker_at(url: str, **settings: Any) -> Station:
    one = Station(queue=await open_queue(QueueSettings(queue=url)), **settings)
    await one.start()
    return one


async def test_letters_are_listed_shown_replayed_and_purged() -> None:
    async with Broker(port=0) as broker:
        assert (await shoal(broker.url, "list")).output == ""
        one = await worker_at(broker.url, keep_dead_bodies=True, fake={"run_fault": "", "a_s": 0.0})
        secret = "fault:crash of a private text"
        await one.ask([secret], request_id="mine")
        await one.close()

        listed = await shoal(broker.url, "list")
        assert "crashed" in listed.output
        assert f"embed {SPEC.id} items=1" in listed.output
        assert "request=mine.0" in listed.output
        number = listed.output.split()[0]
        as_json = json.loads((await shoal(broker.url, "list", "--json")).output)
        shown = json.loads((await shoal(broker.url, "show", number)).output)
        assert shown == as_json
        assert shown["error"]["code"] == "internal_error"
        assert shown["has_texts"]
        for output in (listed.output, json.dumps(shown)):
            assert "private" not in output

        missing = await shoal(broker.url, "show", "999")
        assert missing.exit_code == 1
        assert "999" in missing.output

        nobody = await shoal(broker.url, "replay", number, "--timeout", "0.2")
        assert nobody.exit_code == 1
        assert "deadline_exceeded" in nobody.output
        two = await worker_at(broker.url, max_deliveries=50)
        still = await shoal(broker.url, "replay", number)  # the fault is still in it
        await two.close()
        assert still.exit_code == 1
        assert "internal_error" in still.output
        assert len((await shoal(broker.url, "list")).output.splitlines()) == 2

        assert (await shoal(broker.url, "purge", number)).output == "removed 1\n"
        assert (await shoal(broker.url, "purge")).output == "removed 1\n"
        assert (await shoal(broker.url, "list")).output == ""


async def test_a_letter_whose_fault_is_gone_is_answered_and_removed() -> None:
    """Given up as undelivered, by a worker that allows no second try."""
    async with Broker(port=0) as broker:
        queue = await open_queue(QueueSettings(queue=broker.url))
        one = Station(queue=queue, max_deliveries=1, keep_dead_bodies=True)
        leases: asyncio.Queue[Any] = asyncio.Queue()
        pull = await queue.pull(LANE, leases.put_nowait)
        pull.grant(1)
        await one.queue.listen("reply.test", one._on_reply)
        asked = one.ask_soon(["hello", "again"])
        (await leases.get()).nak()
        await pull.close()
        await one.start()
        assert "given up" in (await asked).error.message
        replayed = await shoal(broker.url, "replay", "--all")
        assert replayed.exit_code == 0, replayed.output
        assert "answered, 2 items" in replayed.output
        assert (await shoal(broker.url, "list")).output == ""
        await one.close()


@pytest.mark.parametrize("arguments", [["replay"], ["replay", "1", "--all"]])
async def test_replay_wants_one_letter_or_all(arguments: list[str]) -> None:
    done = await shoal("nats://127.0.0.1:1", *arguments)
    assert done.exit_code == 2
    assert "--all" in done.output


def test_without_a_broker_it_says_what_to_name() -> None:
    done = CliRunner().invoke(cli, ["dlq", "list"])
    assert done.exit_code == 2
    assert "--queue" in done.output
