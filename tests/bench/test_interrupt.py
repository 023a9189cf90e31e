"""Ctrl-C on a command with generator processes: all of them end, and nothing is printed but what the command says."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from e2e.running import Running, children_of, running
from shoal.bench.generator import send_load
from shoal.bench.measure import Generator
from shoal.bench.plan import Arrivals, Load, Measured
from shoal.bench.targets import parse_targets
from shoal.cli.bench_loads import in_rounds


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


def test_ctrl_c_shows_what_was_finished(fake_url: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    search = ("--find-rate", "--rate", "10", "--duration-s", "1", "--p99-ms", "60000", "--json", str(figures))
    with running("bench", *search, f"shoal+{fake_url}#device", is_own_group=True) as command:
        command.wait_for_line("requests/s: ")
        interrupt(command, generators)
        command.wait_for_line("INTERRUPTED: the search was not over")
    found = json.loads(figures.read_text())
    assert found["warnings"][0].startswith("INTERRUPTED")
    assert found["targets"]["shoal"]["trials"]


def test_rounds_that_were_finished_are_told_of(fake_url: str) -> None:
    [target] = parse_targets([f"shoal+{fake_url}#device"], {})
    load = Load(target, Arrivals("closed", concurrency=1), [["a"]], 0.1)
    answers: list[Measured | None] = [send_load(load), None]

    class Interrupted(Generator):
        def measure(self, load: Load) -> Measured:
            if (answer := answers.pop(0)) is None:
                raise KeyboardInterrupt
            return answer

    with ProcessPoolExecutor(1) as pool:  # which is never asked, and so starts nothing
        rows, page = in_rounds(Interrupted(pool, 1), [load], 3, 0.0, [], is_shown=False)
        assert rows["shoal"]["requests"] > 0
        assert page.warnings[0] == "INTERRUPTED: of 3 rounds these were finished: shoal 1."
        answers.append(None)
        with pytest.raises(KeyboardInterrupt):
            in_rounds(Interrupted(pool, 1), [load], 3, 0.0, [], is_shown=False)


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
