"""Settings as options: each flag and each variable fills its field, the flag wins, and the help says it all."""

from __future__ import annotations

import dataclasses
from typing import Any

import click
import pytest
from click.testing import CliRunner

from shoal import settings
from shoal.cli.options import Command
from shoal.cli.options import settings as with_settings
from shoal.runtimes.registry import RUNTIMES
from shoal.settings import Declaration, declarations

GROUPS = [getattr(settings, name) for name in settings.__all__ if name.endswith("Settings")]
EVERY = [pytest.param(group, one, id=one.variable) for group in GROUPS for one in declarations(group)]


def parsed(group: type[Any], *arguments: str, **variables: str) -> Any:
    """The group that a command with these arguments and variables receives."""
    received = []

    @click.command(cls=Command)
    @with_settings(group=group)
    def command(group: Any) -> None:
        received.append(group)

    done = CliRunner(env=variables).invoke(command, arguments)
    assert done.exit_code == 0, done.output
    return received[0]


def other_value(one: Declaration) -> tuple[Any, str]:
    """A value that is not the default, and how it is written."""
    if one.choices:
        value = next(choice for choice in one.choices if choice != one.default)
        return value, value
    if one.kind is bool:
        return not one.default, str(not one.default).lower()
    if one.is_json_object:
        return '{"a": 1}', '{"a": 1}'
    if one.is_size:
        return "6GiB", "6GiB"
    value = {int: 17, float: 2.5 if one.maximum > 1 else 0.5, str: "words"}[one.kind]
    return value, str(value)


@pytest.mark.parametrize("group", GROUPS)
def test_defaults_are_those_declared(group: type[Any]):
    assert parsed(group) == group()


@pytest.mark.parametrize(("group", "one"), EVERY)
def test_every_variable(group: type[Any], one: Declaration):
    value, text = other_value(one)
    assert parsed(group, **{one.variable: text}) == group(**{one.name: value})


@pytest.mark.parametrize(("group", "one"), EVERY)
def test_every_flag_and_it_wins_over_the_variable(group: type[Any], one: Declaration):
    value, text = other_value(one)
    flag = [one.flag, text]
    if one.kind is bool:
        flag = [one.flag if value else one.flag.replace("--", "--no-", 1)]
    variables = (
        {one.variable: str(one.default)} if one.default != "" else {one.variable: "1" if one.is_size else "other"}
    )
    assert parsed(group, *flag, **variables) == group(**{one.name: value})


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("", 0), ("0", 0), ("123", 123), ("500MB", 500_000_000), ("1.5 GiB", 1_610_612_736), ("2k", 2000), ("7b", 7)],
)
def test_sizes_are_read_with_their_units(text: str, num_bytes: int):
    assert settings.parse_size(text) == num_bytes


@pytest.mark.parametrize("text", ["-1", "1.5.2", "GiB", "6 gigabytes", "1e9", "nan"])
def test_what_is_no_size_is_refused(text: str):
    with pytest.raises(ValueError, match="no number of bytes"):
        settings.parse_size(text)


@pytest.mark.parametrize(("group", "one"), EVERY)
def test_variables_written_for_a_child_read_the_same(group: type[Any], one: Declaration):
    """What `settings.environment` gives to a worker process is what its command line reads."""
    changed = dataclasses.replace(group(), **{one.name: other_value(one)[0]})
    assert parsed(group, **settings.environment(changed)) == changed


def test_help_lists_groups_with_variable_default_and_choices():
    @click.command(cls=Command)
    @click.option("--own", help="Something else.")
    @with_settings(worker=settings.WorkerSettings, queue=settings.QueueSettings)
    def command(**values: Any) -> None: ...

    text = CliRunner().invoke(command, ["--help"], terminal_width=200).output
    assert text.index("Options:") < text.index("--own") < text.index("Worker options:") < text.index("Queue options:")
    assert "[auto|float32|bfloat16|float16|int8_weights|int8]" in text
    assert "env var: SHOAL_MAX_BATCH_TOKENS; default: 32768" in text
    assert "env var: SHOAL_QUEUE_TOKEN]" in text


def test_the_help_says_ranges():
    @click.command(cls=Command)
    @with_settings(gateway=settings.GatewaySettings)
    def command(gateway: Any) -> None: ...

    text = CliRunner().invoke(command, ["--help"], terminal_width=200).output
    assert "[env var: SHOAL_PORT; default: 8080; at least 0, at most 65535]" in text
    assert "[env var: SHOAL_TIMEOUT_S; default: 60.0; above 0, at most 86400]" in text


WRONG = [
    (settings.GatewaySettings, "port", "99999", "at least 0, at most 65535"),
    (settings.GatewaySettings, "port", "-1", "at least 0, at most 65535"),
    (settings.GatewaySettings, "port", "http", "integer"),
    (settings.GatewaySettings, "timeout_s", "nan", "above 0, at most 86400"),
    (settings.GatewaySettings, "timeout_s", "-5.0", "above 0, at most 86400"),
    (settings.GatewaySettings, "timeout_s", "inf", "above 0, at most 86400"),
    (settings.GatewaySettings, "max_items", "0", "at least 1"),
    (settings.QueueSettings, "lease_s", "0.0", "at least 0.5, at most 3600"),
    (settings.WorkerSettings, "max_batch_tokens", "0", "at least 1"),
    (settings.WorkerSettings, "latency_objective_ms", "0.0", "above 0"),
    (settings.WorkerSettings, "latency_objective_ms", "inf", "above 0"),
    (settings.WorkerSettings, "precision", "int3", "float32"),
    (settings.WorkerSettings, "runtime", "tpu", "openvino"),
    (settings.WorkerSettings, "runtime_options", "{bad", "JSON object"),
    (settings.WorkerSettings, "runtime_options", "[1]", "JSON object"),
    (settings.ServeSettings, "workers", "-1", "at least 0"),
    (settings.BrokerSettings, "broker_port", "65536", "at least 0, at most 65535"),
]


@pytest.mark.parametrize(("group", "name", "text", "allowed"), WRONG, ids=[f"{one[1]}={one[2]}" for one in WRONG])
def test_a_wrong_value_is_wrong_usage(
    group: type[Any], name: str, text: str, allowed: str, monkeypatch: pytest.MonkeyPatch
):
    @click.command()
    @with_settings(group=group)
    def command(group: Any) -> None: ...

    (one,) = [one for one in declarations(group) if one.name == name]
    for done in (
        CliRunner().invoke(command, [one.flag, text]),
        CliRunner().invoke(command, env={one.variable: text}),
    ):
        assert done.exit_code == 2
        assert f"'{one.flag}'" in done.output
        assert text in done.output
        assert allowed in done.output
    monkeypatch.setenv(one.variable, text)
    with pytest.raises(ValueError, match=rf"^{one.variable} is .*{text.strip('{[]}')}.*must be"):
        settings.from_environment(group)


def test_the_runtimes_to_choose_from_are_those_there_are():
    (runtime,) = [one for one in declarations(settings.WorkerSettings) if one.name == "runtime"]
    assert set(runtime.choices) == {"auto", *RUNTIMES}
