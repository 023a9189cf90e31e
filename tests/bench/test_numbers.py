"""Numbers of the command line that no load can be made of: each is refused with its option, value and limit."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner, Result

from shoal.cli.options import Number
from shoal.cli.root import cli


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
