"""The other commands: what reaches launch, exit codes, models, help, and that a start loads little."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

import shoal
import shoal.launch
from client.wire_server import WireServer
from shoal.cli.main import cli
from shoal.cli.serve import DEMO_MODEL
from shoal.settings import GatewaySettings, LogSettings, ModelSettings, QueueSettings, WorkerSettings


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Calls of shoal.launch, by name; nothing runs, and each returns 7."""
    calls: list[tuple[Any, ...]] = []

    def record(name: str) -> Any:
        return lambda *arguments: calls.append((name, *arguments)) or 7

    for name in ("serve", "run_gateway", "run_worker", "run_broker"):
        monkeypatch.setattr(shoal.launch, name, record(name))
    return calls


def test_serve_alone_serves_the_demo_model(run_shoal, launched: list):
    assert run_shoal("serve").exit_code == 7
    assert launched == [
        (
            "serve",
            (DEMO_MODEL,),
            GatewaySettings(),
            WorkerSettings(),
            QueueSettings(),
            ModelSettings(),
            0,
            LogSettings(),
        )
    ]


def test_serve_passes_what_it_is_told(run_shoal, launched: list):
    run_shoal("serve", "a", "./b", "--port", 9, "--threads", 3, "--workers", 2, env={"SHOAL_POOL": "gpu"})
    assert launched == [
        (
            "serve",
            ("a", "./b"),
            GatewaySettings(port=9),
            WorkerSettings(threads=3),
            QueueSettings(pool="gpu"),
            ModelSettings(),
            2,
            LogSettings(),
        )
    ]


def test_models_may_come_from_a_variable_or_a_directory(run_shoal, launched: list):
    run_shoal("serve", env={"SHOAL_MODELS": "a b"})
    run_shoal("serve", "--models-directory", "/models")
    assert [call[1] for call in launched] == [("a", "b"), ()]


def test_cluster_commands(run_shoal, launched: list):
    queue = QueueSettings(queue="nats://here:1")
    run_shoal("gateway", "--queue", "nats://here:1", "--port", 5)
    run_shoal("worker", "a", "--queue", "nats://here:1", "--runtime", "fake")
    run_shoal("broker", "--port", 4, "--store-directory", "/store", env={"SHOAL_BROKER_TOKEN": "secret"})
    assert launched == [
        ("run_gateway", GatewaySettings(port=5), queue),
        ("run_worker", ("a",), WorkerSettings(runtime="fake"), queue, ModelSettings()),
        ("run_broker", "127.0.0.1", 4, "/store", "secret"),
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gateway"], "Name the broker"),
        (["worker", "a"], "Name the broker"),
        (["worker", "--queue", "nats://here:1"], "Name the models"),
        (["serve", "--port", "http"], "'http' is not a valid integer"),
        (["serve", "--no-such-flag"], "No such option"),
        (["bake"], "No such command 'bake'"),
    ],
)
def test_wrong_usage_ends_with_2(run_shoal, launched: list, arguments: list[str], words: str):
    done = run_shoal(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert not launched


def fail_with(error: BaseException) -> Any:
    def fail(*arguments: object) -> int:
        raise error

    return fail


def test_an_error_is_one_line_and_a_hint(run_shoal, monkeypatch: pytest.MonkeyPatch):
    error = shoal.ModelRefused("config.json: unknown key 'x'", hint="Ignore it with --ignore-config-keys.")
    monkeypatch.setattr(shoal.launch, "serve", fail_with(error))
    done = run_shoal("serve", "a", color=True)
    assert done.exit_code == 1
    assert done.stderr == (
        "\x1b[31merror: config.json: unknown key 'x'\x1b[0m\nhint: Ignore it with --ignore-config-keys.\n"
    )


def test_debug_shows_where_an_error_came_from(run_shoal, monkeypatch: pytest.MonkeyPatch):
    error = shoal.NotReady("no")
    monkeypatch.setattr(shoal.launch, "serve", fail_with(error))
    assert run_shoal("--debug", "serve").exception is error
    assert run_shoal("serve", env={"SHOAL_DEBUG": "1"}).exception is error


def test_a_fault_of_the_system_is_one_line_too(run_shoal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shoal.launch, "serve", fail_with(OSError(98, "Address already in use")))
    done = run_shoal("serve")
    assert (done.exit_code, done.stderr) == (1, "error: [Errno 98] Address already in use\n")


def test_ctrl_c(run_shoal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shoal.launch, "serve", fail_with(KeyboardInterrupt()))
    done = run_shoal("serve")
    assert (done.exit_code, done.stderr) == (130, "")


def all_commands(group: click.Group, *path: str) -> list[tuple[str, ...]]:
    found = []
    for name, command in group.commands.items():
        is_group = isinstance(command, click.Group)
        found += all_commands(command, *path, name) if is_group else [(*path, name)]
    return found


@pytest.mark.parametrize("path", all_commands(cli), ids=" ".join)
def test_help_teaches_by_example(run_shoal, path: tuple[str, ...]):
    done = run_shoal(*path, "--help")
    assert done.exit_code == 0
    if path != ("version",):
        assert f"\n  shoal {' '.join(path)}" in done.stdout


def test_version(run_shoal):
    assert run_shoal("version").stdout == run_shoal("--version").stdout == f"shoal {shoal.__version__}\n"


def test_a_start_loads_little():
    """What `shoal --help` imports decides how fast it is: no NumPy, HTTP, terminal or inference library."""
    heavy = ("numpy", "httpx", "rich", "openvino", "starlette", "nats", "tokenizers", "asyncio", "huggingface_hub")
    script = f"import shoal.cli.main, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_models_of_a_running_server(server: WireServer, run_shoal):
    server.cards.append(shoal.ServedModel("org/other", ("embed",), 768, 8192, prompts={"query": "q: "}, state="cold"))
    table = run_shoal("models", "list", "--url", server.url).stdout.splitlines()
    assert table[0].split() == ["model", "state", "operations", *"dimensions max length prompts also called".split()]
    assert table[1].split() == ["tiny", "ready", "embed", "12", "512", "little"]
    assert table[2].split() == ["org/other", "cold", "embed", "768", "8192", "query"]
    listed = json.loads(run_shoal("models", "list", "--url", server.url, "--json").stdout)
    assert [(model["id"], model["dimensions"], model["state"]) for model in listed] == [
        ("tiny", 12, "ready"),
        ("org/other", 768, "cold"),
    ]


def test_a_server_that_was_named_must_answer(run_shoal):
    done = run_shoal("models", "list", "--url", "http://127.0.0.1:1")
    assert done.exit_code == 1
    assert "No server answers at http://127.0.0.1:1" in done.stderr
    assert not done.stdout


def test_without_a_server_the_catalog_is_listed(run_shoal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shoal.client.Client.models", fail_with(shoal.NotReady("No server answers.")))
    done = run_shoal("models", "list")
    assert done.exit_code == 0
    assert "Models that this installation knows" in done.stderr
    assert DEMO_MODEL in done.stdout
    assert "state" not in done.stdout


def test_show(run_shoal, demo_directory: Path):
    facts = json.loads(run_shoal("models", "show", demo_directory, "--json").stdout)
    wanted = {"family": "bert", "dimensions": 384, "vocabulary": 30522, "directory": str(demo_directory)}
    assert wanted.items() <= facts.items()
    assert facts["modules"][0]["modes"] == ["mean"]
    lines = run_shoal("models", "show", demo_directory).stdout.splitlines()
    assert ["dimensions", "384"] in [line.split() for line in lines]


def test_show_what_is_not_there(run_shoal, tmp_path: Path):
    done = run_shoal("models", "show", tmp_path / "nothing")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    assert "nothing" in done.stderr


def test_pull(run_shoal, demo_directory: Path):
    done = run_shoal("models", "pull", demo_directory)
    assert (done.exit_code, done.stdout) == (0, f"{demo_directory.name}: 91 MB of weights in {demo_directory}\n")
