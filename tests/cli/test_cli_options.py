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
    value = {int: 17, float: 2.5, str: "words"}[one.kind]
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
    variables = {one.variable: str(one.default)} if one.default != "" else {one.variable: "other"}
    assert parsed(group, *flag, **variables) == group(**{one.name: value})


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
    assert "[auto|float32|bfloat16|float16]" in text
    assert "env var: SHOAL_MAX_BATCH_TOKENS; default: 32768" in text
    assert "env var: SHOAL_QUEUE_TOKEN]" in text


@pytest.mark.parametrize("arguments", [["--threads", "many"], ["--precision", "int3"]])
def test_a_wrong_value_is_wrong_usage(arguments: list[str]):
    @click.command()
    @with_settings(worker=settings.WorkerSettings)
    def command(worker: Any) -> None: ...

    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 2
    assert arguments[1] in done.output
