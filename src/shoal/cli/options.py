"""Groups of settings as command line options: flag, variable, help, choices and default from one declaration."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from shoal.settings import Declaration, declarations

__all__ = ["Command", "NewFile", "Number", "setting", "settings"]

F = TypeVar("F", bound=Callable[..., Any])


class Number(click.FloatRange):
    """A number in a range; what is not finite is in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} must be a finite number.", param, ctx)
        return number


class NewFile(click.Path):
    """A file that is written at the end: that it can be is seen before the work."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(str(super().convert(value, param, ctx)))
        if not os.access(path.parent, os.W_OK | os.X_OK):
            reason = "cannot be written to" if path.parent.is_dir() else "is no directory"
            self.fail(f"{value}: {path.parent} {reason}.", param, ctx)
        return path


class Command(click.Command):
    """A command whose help lists the options of each settings group under a heading of their own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and not isinstance(parameter, click.Argument):
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)


class _SettingOption(click.Option):
    def __init__(self, *arguments: Any, section: str, declaration: Declaration, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.section = section
        self._declaration = declaration

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        converted = super().type_cast_value(ctx, value)
        if problem := self._declaration.problem_of(converted):
            raise click.BadParameter(f"{converted!r} is not allowed: it {problem}.", ctx, self)
        return converted

    def get_help_extra(self, ctx: click.Context) -> Any:
        extra = super().get_help_extra(ctx)
        if self._declaration.range:
            extra["range"] = self._declaration.range
        return extra


def settings(**groups: type[Any]) -> Callable[[F], F]:
    """Give a command the options of settings groups; it receives each group, filled, under the keyword named here."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def command(*arguments: Any, **values: Any) -> Any:
            filled = {
                keyword: group(
                    **{declaration.name: values.pop(declaration.name) for declaration in declarations(group)}
                )
                for keyword, group in groups.items()
            }
            return function(*arguments, **values, **filled)

        decorated: Any = command
        for group in reversed(groups.values()):
            for declaration in reversed(declarations(group)):
                decorated = _option(declaration, f"{group.__name__.removesuffix('Settings')} options")(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def setting(group: type[Any], name: str) -> Callable[[F], F]:
    """Give a command the option of one setting; it receives the value under the setting's name."""
    return _option(next(one for one in declarations(group) if one.name == name), "Options")


def _option(declaration: Declaration, section: str) -> Callable[[Any], Any]:
    flag = declaration.flag
    if declaration.kind is bool:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    is_shown = declaration.default != "" and not declaration.is_secret
    return click.option(
        flag,
        declaration.name,
        cls=_SettingOption,
        section=section,
        declaration=declaration,
        type=click.Choice(declaration.choices) if declaration.choices else declaration.kind,
        default=declaration.default,
        envvar=declaration.variable,
        help=declaration.help,
        show_default=is_shown,
        show_envvar=True,
    )
