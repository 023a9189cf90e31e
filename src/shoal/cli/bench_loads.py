"""The two runs of `shoal bench run`: rounds of one load, the search for the highest rate. Imported on use.

Ctrl-C ends either early; what was finished by then is shown, marked as such.
"""

from __future__ import annotations

from typing import Any

import click
import msgspec

from shoal.bench.measure import Generator, RateSearch, Trial, find_rates, interleave, searches_from_closed_loops
from shoal.bench.plan import Arrivals, Load, Measured
from shoal.bench.report import Page
from shoal.bench.summary import load_page, rate_page, row, trial_line
from shoal.bench.targets import Target
from shoal.cli.benching import INTERRUPTED, progress

__all__ = ["find", "in_rounds"]

Facts = list[tuple[str, str]]


def in_rounds(
    senders: Generator, loads: list[Load], rounds: int, warm_up_s: float, facts: Facts, *, is_shown: bool
) -> tuple[dict[str, Any], Page]:
    """Figures by target and the report.

    Raises:
        KeyboardInterrupt: before anything was finished.
    """
    seconds = len(loads) * (rounds * loads[0].duration_s + warm_up_s)
    measured: dict[str, list[Measured]] = {}
    interruption = ""
    try:
        with progress(len(loads) * (rounds + 1), f"about {seconds:.0f} s", is_shown=is_shown) as advance:
            for load in loads:
                if warm_up_s > 0:
                    closed = Arrivals("closed", concurrency=4)
                    senders.measure(msgspec.structs.replace(load, arrivals=closed, duration_s=warm_up_s))
                advance()
            interleave(senders, loads, rounds, advance, measured)
    except KeyboardInterrupt:
        measured = {name: stretches for name, stretches in measured.items() if stretches}
        if not measured:
            raise
        finished = ", ".join(f"{name} {len(stretches)}" for name, stretches in measured.items())
        interruption = f"{INTERRUPTED}: of {rounds} rounds these were finished: {finished}."
    rows = {name: row(stretches) for name, stretches in measured.items()}
    facts = [*facts, ("rounds", f"{rounds} of {loads[0].duration_s:g} s each, targets taking turns")]
    return rows, _marked(load_page(rows, loads[0].arrivals, facts), interruption)


def find(
    senders: Generator, loads: list[Load], p99_ms: float, facts: Facts, *, is_shown: bool
) -> tuple[dict[str, Any], Page]:
    """Figures by target and the report.

    Raises:
        NotReady: a target answers nothing at all.
        KeyboardInterrupt: before any trial was finished.
    """
    seconds = 9 * len(loads) * loads[0].duration_s
    trials: dict[str, list[Trial]] = {}
    interruption = ""
    try:
        with progress(None, f"about {seconds:.0f} s", is_shown=is_shown) as advance:

            def on_trial(target: Target, trial: Trial) -> None:
                trials.setdefault(target.name, []).append(trial)
                advance()
                if is_shown:
                    click.echo(trial_line(target.name, trial), err=True)

            find_rates(senders, loads, _searches(senders, loads), p99_ms / 1000, 99.0, on_trial)
    except KeyboardInterrupt:
        if not trials:
            raise
        interruption = f"{INTERRUPTED}: the search was not over; the highest rate may be higher."
    figures = {name: _figures(tried, p99_ms) for name, tried in trials.items()}
    return figures, _marked(rate_page(trials, p99_ms, 99.0, facts), interruption)


def _searches(senders: Generator, loads: list[Load]) -> dict[str, RateSearch]:
    arrivals = loads[0].arrivals
    if arrivals.is_open:
        return {load.target.name: RateSearch(arrivals.rate) for load in loads}
    return searches_from_closed_loops(senders, loads, arrivals.concurrency)


def _figures(tried: list[Trial], p99_ms: float) -> dict[str, Any]:
    return {
        "highest_rate": round(max((trial.rate for trial in tried if trial.is_good), default=0.0), 3),
        "p99_ms": p99_ms,
        "trials": [{"rate": trial.rate, "is_good": trial.is_good, **row([trial.measured])} for trial in tried],
    }


def _marked(page: Page, interruption: str) -> Page:
    return page._replace(warnings=[interruption, *page.warnings]) if interruption else page
