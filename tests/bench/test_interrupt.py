"""Ctrl-C on a command with generator processes: all of them end, and nothing is printed but what the command says."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.running import Running, children_of, running


@pytest.mark.parametrize(
    "arguments",
    [
        ("bench", "run", "--duration-s", "60", "--rate", "5"),
        ("tune", "fake:toy", "--runtime", "fake", "--knob", "c_s", "--minutes", "5"),
    ],
    ids=["bench", "tune"],
)
def test_ctrl_c_ends_the_generators_too(fake_url: str, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    more = (f"shoal+{fake_url}#device",) if arguments[0] == "bench" else ("--directory", str(tmp_path))
    with running(*arguments, *more, is_own_group=True, SHOAL_STATE=str(tmp_path)) as command:
        interrupt(command, generators)
    assert "Traceback" not in command.output


def test_ctrl_c_while_the_generators_start_says_nothing(fake_url: str) -> None:
    with running("bench", "--processes", "3", f"shoal+{fake_url}#device", is_own_group=True) as command:
        interrupt(command, starting)
    assert "Traceback" not in command.output
    assert "semaphore" not in command.output


def interrupt(command: Running, found: Callable[[int], list[int]]) -> None:
    """Ctrl-C as soon as there are generator processes, which all end with the command."""
    while not (below := found(command.process.pid)):
        assert command.process.poll() is None, command.output
    watched = [os.pidfd_open(pid) for pid in below]
    os.killpg(command.process.pid, signal.SIGINT)
    assert command.process.wait(30) == 130
    for process in watched:
        assert select.select([process], [], [], 30)[0], "a generator process lives on"
        os.close(process)


def starting(pid: int) -> list[int]:
    """Generator processes, however far they are."""
    return [child for child in children_of(pid) if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def generators(pid: int) -> list[int]:
    """Generator processes that have set up: they ignore SIGINT."""
    found = []
    for child in starting(pid):
        status = Path(f"/proc/{child}/status").read_text()
        ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
        if ignored & (1 << (signal.SIGINT - 1)):
            found.append(child)
    return found
