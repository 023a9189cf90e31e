"""Numbers of the command line that no load can be made of: each is refused with its option, value and limit."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner, Result

from shoal.bench import limits
from shoal.cli.options import Number
from shoal.cli.root import cli
from shoal.errors import InvalidRequest


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def numbers() -> Iterator[tuple[str, str]]:
    """(command, option) of everything that takes a number with a fraction, but for settings: those check themselves."""

    def walk(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
        for name, below in command.commands.items() if isinstance(command, click.Group) else ():
            yield from walk(below, f"{path} {name}".strip())
        for option in command.params:
            is_number = isinstance(option.type, click.types.FloatParamType)
            if is_number and type(option) is click.Option:
                yield path, option.opts[0]

    return walk(cli, "")


def test_there_are_such_options() -> None:
    found = set(numbers())
    assert {("bench run", "--rate"), ("bench compare", "--price"), ("embed", "--timeout-s")} < found
    assert any(command == "tune" for command, _ in found)


@pytest.mark.parametrize(("command", "option"), sorted(numbers()))
def test_what_is_not_finite_is_refused(command: str, option: str) -> None:
    for value in ("nan", "inf", "-inf"):
        result = invoked(*command.split(), option, value)
        assert result.exit_code == 2, result.output
        assert option in result.output
        assert "finite" in result.output or "not in the range" in result.output


def test_a_number_is_finite() -> None:
    assert Number(0)("1.5") == 1.5
    with pytest.raises(click.BadParameter, match="inf must be a finite number"):
        Number(0)("inf")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--concurrency", "100000000"), r"--concurrency 100,000,000 is more than the [\d,]+ connections"),
        (("--rate", "1e9"), "--rate 1e\\+09 for --duration-s 5 plans 5e\\+09 requests; at most 5,000,000"),
        (("--rate", "1", "--burst", "10000000"), "--burst 10,000,000 is more than the 5,000,000"),
        (("--rate", "100", "--duration-s", "1e9"), "at most 5,000,000 can be planned"),
    ],
)
def test_a_load_beyond_the_machine_is_refused_with_its_limit(arguments: tuple[str, ...], expected: str) -> None:
    result = invoked("bench", *arguments, "tei+http://127.0.0.1:9")
    assert result.exit_code == 1
    assert re.search(expected, result.output), result.output


def test_a_generator_may_have_as_many_connections_as_open_files() -> None:
    most = limits.most_connections()
    limits.check_concurrency(2 * most, 2)
    with pytest.raises(InvalidRequest, match="generator process may"):
        limits.check_concurrency(most + 1, 1)
