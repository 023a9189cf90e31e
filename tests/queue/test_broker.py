"""The broker process: its port, its log, its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from shoal.errors import NotReady
from shoal.queue.broker import Broker


async def test_it_accepts_when_start_returns_and_leaves_nothing_when_stop_does() -> None:
    broker = Broker(port=0)
    await broker.start()
    pid = broker.pid
    assert pid is not None
    assert broker.url == f"nats://127.0.0.1:{broker.port}"
    _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.close()
    await writer.wait_closed()
    assert broker._scratch is not None
    scratch = broker._scratch.path
    assert os.stat(scratch / "nats.conf").st_mode & 0o077 == 0
    await broker.stop()
    await broker.stop()
    with pytest.raises(FileNotFoundError):
        os.stat(scratch)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = Broker(port=port)
        with pytest.raises(NotReady, match=rf"Port {port} on 127\.0\.0\.1 is taken"):
            await broker.start()
        assert broker.pid is None


async def test_other_reasons_not_to_start_are_passed_on() -> None:
    with pytest.raises(NotReady, match=r"192\.0\.2\.1"):
        await Broker(port=0, host="192.0.2.1").start()


async def test_its_own_end_is_logged_and_ends_wait(caplog: pytest.LogCaptureFixture) -> None:
    async with Broker(port=0) as broker:
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        assert await broker.wait() == -signal.SIGKILL
        assert broker._reader is not None
        await asyncio.wait([broker._reader])
        assert "ended by itself" in caplog.text


async def test_its_log_comes_through_ours(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "shoal.queue.broker"):
        async with Broker(port=0):
            pass
    ready = [record for record in caplog.records if "Server is ready" in record.getMessage()]
    assert [record.levelno for record in ready] == [logging.DEBUG]
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


async def test_files_go_where_told(tmp_path: Path) -> None:
    async with Broker(port=0, store_directory=tmp_path / "store"):
        assert (tmp_path / "store" / "jetstream").is_dir()
    assert (tmp_path / "store").is_dir()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
async def test_it_dies_with_its_parent() -> None:
    code = """
import asyncio
from shoal.queue.broker import Broker

async def main():
    broker = Broker(port=0)
    await broker.start()
    print(broker.port, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    port = int(await parent.stdout.readline())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    parent.kill()
    await parent.wait()
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionResetError):
            await reader.read()  # to the end: the broker is gone
    writer.close()
    with contextlib.suppress(ConnectionResetError):
        await writer.wait_closed()
