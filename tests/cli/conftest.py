"""The command line in this process, and as a process of its own, before a server that speaks the real wire."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from client.wire_server import WireServer, serving
from shoal.cli.root import cli


@pytest.fixture(scope="session")
def running_server() -> Iterator[WireServer]:
    with serving() as running:
        yield running


@pytest.fixture
def server(running_server: WireServer) -> WireServer:
    running_server.reset()
    return running_server


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SHOAL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def run_shoal() -> Callable[..., Result]:
    """`run_shoal("embed", "text", input=b"...")`: a command run in this process."""

    def run(*arguments: Any, **options: Any) -> Result:
        return CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="shoal", **options)

    return run


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """`start("embed", ..., stdout=...)`: a command as a process of its own, ended with the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def run(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "shoal.cli.main", *(str(argument) for argument in arguments)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command, **(pipes | options)))
        return processes[-1]

    yield run
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()
