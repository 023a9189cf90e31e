"""What `shoal tune` prints of a trial, in lines of 80 columns."""

from __future__ import annotations

import collections
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.catalog.profiles import Profile
    from shoal.tuner.ledger import Entry

__all__ = ["budget_line", "lines_of", "resuming_lines", "standing_line"]

WIDTH = 79
_STAGE, _NAME = 9, 30
_GAP = 2


def lines_of(entry: Entry) -> list[str]:
    """A finished trial: a line for each configuration in it, longer ones below each other."""
    lines: list[str] = []
    for number, (name, what) in enumerate(_rows(entry)):
        stage = f"{_stage(entry) if number == 0 else '':<{_STAGE}}"
        if len(name) > _NAME:
            lines += textwrap.wrap(stage + name, WIDTH, subsequent_indent=" " * _STAGE)
            stage, name = " " * _STAGE, ""
        indent = " " * (_STAGE + _NAME + _GAP)
        lines += textwrap.wrap(f"{stage}{name:<{_NAME}}{' ' * _GAP}{what}", WIDTH, subsequent_indent=indent)
    return lines


def budget_line(budget_s: float, least_s: float) -> str:
    """How long it will take, before it begins."""
    least = f"at least about {least_s / 60:.1f} minutes of load are run, and servers start besides"
    if least_s <= budget_s:
        return f"The budget is {budget_s / 60:g} minutes: {least}."
    return f"This takes longer than the budget of {budget_s / 60:g} minutes: {least}."


def resuming_lines(entries: Sequence[Entry]) -> list[str]:
    """What is not done again."""
    counts = collections.Counter(_stage(entry) for entry in entries if entry.stage != "verdict")
    told = ", ".join(f"{count} {stage}" for stage, count in counts.items())
    minutes = sum(entry.seconds for entry in entries) / 60
    text = f"Going on: {sum(counts.values())} finished trials of {minutes:.1f} minutes are in the ledger ({told})."
    return textwrap.wrap(text, WIDTH)


def standing_line(profile: Profile) -> str:
    """Which profile was not replaced, and why."""
    from shoal.tuner.space import name_of

    return (
        f"  the profile of {profile.date} stands: {name_of(profile.settings)}, {profile.figures.ratio:.3f} times the "
        "default, which this search did not race; --replace writes this one instead"
    )


def _stage(entry: Entry) -> str:
    return entry.stage if entry.stage.startswith("rung") else entry.stage.partition(" ")[0]


def _rows(entry: Entry) -> Iterator[tuple[str, str]]:
    from shoal.tuner.report import metric_of
    from shoal.tuner.space import name_of

    if entry.points:
        for name, figure in entry.figures.items():
            yield name, f"{figure:,.4g}"
        return
    name, figures = name_of(entry.configuration), entry.figures
    metric = [f"task's metric {told}"] if (told := metric_of(entry)) else []
    if entry.status == "measured" and entry.stage == "fit":
        costs = [f"{figures['predicted']:,.4g} predicted"]
        costs += [f"{word} {figures[key]:,.3g} {unit}" for key, word, unit in _COSTS if key in figures]
        yield name, ", ".join([*costs, *metric])
    elif entry.status == "measured":
        yield name, entry.reason
    else:
        yield name, ", ".join([f"{entry.status}: {entry.reason}", *metric])


_COSTS = (("a_ms", "a", "ms"), ("c_us", "c", "us"))
