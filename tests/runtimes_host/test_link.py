"""A real runtime host as a child process, with the fake runtime in it."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from shoal.catalog.spec import ModelSpec, Tokenization
from shoal.errors import InternalError, ModelRefused
from shoal.runtimes import link as link_module
from shoal.runtimes.base import Features, RuntimeOptions
from shoal.runtimes.fake import CRASH_ID, OUT_OF_MEMORY_ID, RAISE_ID, fake_vector
from shoal.runtimes.link import HostExited, HostLink

SPEC = ModelSpec("fake", "/", "fake", {}, (), Tokenization("", 512), (), 8)


def features(*items: list[int]) -> Features:
    ids = np.array([token for item in items for token in item], np.int32)
    lengths = np.array([len(item) for item in items], np.int32)
    return Features(ids, lengths, np.zeros(len(items), np.int32))


@pytest.fixture
async def link() -> AsyncIterator[HostLink]:
    link = HostLink("test host")
    await link.start()
    yield link
    await link.stop()


async def load(link: HostLink, name: str = "fake", **extra: object) -> None:
    await link.load(name, SPEC, "fake", RuntimeOptions(extra=dict(extra)))


async def test_runs_come_back_in_order_with_the_seconds_they_took(link: HostLink) -> None:
    await load(link, a_s=0.002)
    runs = [link.run("fake", features([100 + i, 7_000], [200 + i])) for i in range(50)]
    for i, (arrays, seconds) in enumerate(await asyncio.gather(*runs)):
        np.testing.assert_array_equal(arrays["dense"][0], fake_vector(np.array([100 + i, 7_000], np.int32), 8))
        np.testing.assert_array_equal(arrays["dense"][1], fake_vector(np.array([200 + i], np.int32), 8))
        assert 0.002 <= seconds < 1


async def test_large_batches_both_ways_do_not_block_each_other(link: HostLink) -> None:
    wide = ModelSpec("wide", "/", "fake", {}, (), Tokenization("", 512), (), 4096)
    await link.load("wide", wide, "fake", RuntimeOptions())
    batch = features(*[[10 + i] * 200 for i in range(500)])
    for arrays, _ in await asyncio.gather(*(link.run("wide", batch) for _ in range(3))):
        assert arrays["dense"].shape == (500, 4096)
        np.testing.assert_array_equal(arrays["dense"][499], fake_vector(np.full(200, 509, np.int32), 4096))


async def test_a_failed_run_is_an_error_and_the_host_lives(link: HostLink) -> None:
    await load(link)
    with pytest.raises(InternalError, match="RuntimeError: a fault was asked for"):
        await link.run("fake", features([RAISE_ID]))
    with pytest.raises(MemoryError):
        await link.run("fake", features([OUT_OF_MEMORY_ID]))
    with pytest.raises(InternalError, match="no session 'other'"):
        await link.run("other", features([100]))
    arrays, _ = await link.run("fake", features([100]))
    assert arrays["dense"].shape == (1, 8)


async def test_a_failed_load_is_an_error_and_the_host_lives(link: HostLink) -> None:
    with pytest.raises(ModelRefused, match="no option 'bogus'") as caught:
        await load(link, bogus=1)
    assert "a_s" in str(caught.value.hint)
    with pytest.raises(ModelRefused, match="no runtime 'nonesuch'"):
        await link.load("fake", SPEC, "nonesuch", RuntimeOptions())
    await load(link)


async def test_a_session_runs_while_another_one_loads(link: HostLink) -> None:
    await load(link)
    loading = link.load("slow", SPEC, "fake", RuntimeOptions(extra={"load_s": 60.0}))
    await link.run("fake", features([100]))
    assert not loading.done()


async def test_an_unloaded_session_is_gone(link: HostLink) -> None:
    await load(link)
    await link.unload("fake")
    with pytest.raises(InternalError, match="no session 'fake'"):
        await link.run("fake", features([100]))


async def test_a_death_fails_what_was_open_and_a_restart_serves_again() -> None:
    exited = asyncio.Event()
    link = HostLink("test host", exited.set)
    await link.start()
    await load(link)
    crashed, behind = link.run("fake", features([CRASH_ID])), link.run("fake", features([100]))
    for run in (crashed, behind):
        with pytest.raises(HostExited):
            await run
    await exited.wait()
    assert not link.is_running
    with pytest.raises(HostExited, match="not running"):
        await link.run("fake", features([100]))
    await link.restart()
    await load(link)
    await link.run("fake", features([100]))
    await link.stop()


async def test_a_host_that_dies_at_once_again_and_again_is_started_after_pauses_that_grow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_module, "FIRST_BACK_OFF_S", 0.01)
    monkeypatch.setattr(link_module, "MAX_BACK_OFF_S", 0.04)
    exited = asyncio.Event()
    link = HostLink("test host", exited.set)
    await link.start()
    pauses = []
    for _ in range(4):
        link.kill()
        await exited.wait()
        exited.clear()
        await link.restart()
        pauses.append(link._back_off_s)
    assert pauses == [0.01, 0.02, 0.04, 0.04]
    await load(link)
    await link.run("fake", features([100]))
    link.kill()
    await exited.wait()
    await link.restart()
    assert link._back_off_s == 0.01  # it had run a batch: this restart was at once
    await link.stop()


async def test_stop_is_no_death_and_leaves_no_process() -> None:
    deaths: list[None] = []
    link = HostLink("test host", lambda: deaths.append(None))
    await link.start()
    pid = link.pid
    assert pid is not None
    await link.stop()
    assert not deaths
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_terminal_interrupt_does_not_reach_the_host(link: HostLink) -> None:
    await load(link)
    assert link.pid is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(link.pid, number)
    await link.run("fake", features([100]))


async def test_what_the_host_prints_is_logged(link: HostLink, caplog: pytest.LogCaptureFixture) -> None:
    await load(link)
    with pytest.raises(InternalError):
        await link.run("fake", features([RAISE_ID]))
    await link.stop()
    assert "test host: RuntimeError: a fault was asked for" in caplog.text


def test_the_host_imports_no_event_loop_and_no_other_runtime() -> None:
    unwanted = {"asyncio", "openvino", "starlette", "nats"}
    code = f"import sys, shoal.runtimes.host; print(sorted({unwanted} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"


def test_the_host_dies_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import asyncio, os, signal\n"
        "from shoal.runtimes.link import HostLink\n"
        "async def main():\n"
        "    link = HostLink('orphan')\n"
        "    await link.start()\n"
        "    print(link.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == -signal.SIGKILL
    try:
        host = os.pidfd_open(int(done.stdout))
    except ProcessLookupError:
        return  # gone already
    assert select.select([host], [], [], 10)[0], "the host outlives its parent"
    os.close(host)
