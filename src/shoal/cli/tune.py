"""`shoal tune` and `shoal research`: the arguments, a bar, a table that grows. What is done is in `tuner`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shoal.cli.options import Command, Number, settings
from shoal.cli.tuning_arguments import plan_of
from shoal.cli.tuning_lines import budget_line, lines_of, resuming_lines, standing_line
from shoal.settings import ModelSettings, TunerSettings, WorkerSettings, state_directory

if TYPE_CHECKING:
    from shoal.tuner.ledger import Entry
    from shoal.tuner.search import Progress
    from shoal.tuner.tuning import Plan, Tuned

__all__ = ["research", "tune"]

F = TypeVar("F", bound=Callable[..., Any])


def _common(function: F) -> F:
    """The options that both commands have."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_POSITIVE = Number(min=0, min_open=True)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(file_okay=False, path_type=Path)


def _choice(name: str, choices: tuple[str, ...], help: str) -> Callable[[F], F]:
    return click.option(name, type=click.Choice(choices), default=choices[0], show_default=True, help=help)


def _amount(name: str, default: float, help: str) -> Callable[[F], F]:
    return click.option(name, type=_POSITIVE, default=default, show_default=True, help=help)


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    _amount("--minutes", 10.0, "Budget of trials for each model; at least five fits and four final pairs are run."),
    _choice(
        "--objective",
        ("rate", "latency", "cost"),
        "Highest Poisson rate with p99 within --p99-ms; lowest p99 at --rate; or most tokens for the money.",
    ),
    _amount("--p99-ms", 50.0, "Limit of the objective rate."),
    _amount("--rate", 50.0, "Requests a second of the objective latency."),
    _amount("--price-per-hour", 1.0, "What the machine costs, for the objective cost."),
    _amount("--seconds", 2.0, "Length of the shortest load; longer ones tell more and cost more."),
    click.option("--text", "text_file", type=_FILE, help="Your own texts, one a line or .jsonl; else those of --mix."),
    _choice("--mix", ("short", "medium", "mixed"), "Lengths of the built-in texts."),
    click.option(
        "--knob",
        "knobs",
        multiple=True,
        help="Turn only these: a name, or name=value,value. Give it again for more.",
    ),
    click.option(
        "--beside",
        multiple=True,
        metavar="'NAME=VALUE ...'",
        help="Hold the winner against this configuration in the end, such as 'runtime=torch'. Give it again for more.",
    ),
    click.option("--documents", type=_FILE, help="A task of your own: a collection, one a line or .jsonl,"),
    click.option("--queries", type=_FILE, help="its queries,"),
    click.option(
        "--qrels",
        type=_FILE,
        help="and what is relevant (query-id, corpus-id, score, with a header): nDCG@10 may fall by 1 % at most.",
    ),
    click.option(
        "--most-documents",
        type=click.IntRange(min=20),
        default=200,
        show_default=True,
        help="So many of --documents are embedded by each trial of another number format.",
    ),
    _choice("--proposer", ("sweep", "optuna", "llm"), "Who says what to try next; only measurements accept."),
    click.option("--directory", type=_DIRECTORY, help="Ledger, logs and report; a ledger there is continued."),
    click.option("--profiles", type=_DIRECTORY, help="Where profiles are written; default: where serve looks."),
    click.option(
        "--replace",
        is_flag=True,
        help="Write the profile even if nothing better was found and one with proven settings stands there.",
    ),
)


@click.command(cls=Command)
@click.argument("model")
@_common
@settings(worker=WorkerSettings, models=ModelSettings, tuner=TunerSettings)
def tune(model: str, directory: Path | None, worker: WorkerSettings, **values: Any) -> int:
    """Find, prove and keep the settings with which MODEL is served best on this machine.

    Every candidate is loaded, its costs are fitted and its vectors compared with float32; the most promising race each
    other under open-loop load; the winner must beat the default in pairs on fresh seeds, or the default stays. The
    profile is then used by `shoal serve` by itself. Stop it at any time: the same command goes on where it was.

    \b
    shoal tune sentence-transformers/all-MiniLM-L6-v2
    shoal tune ./my-model --text my.txt --objective latency --rate 100
    shoal tune ./my-model --knob threads --knob precision=float32,bfloat16 --minutes 3
    """
    directory = directory or _directory_of(model)
    plan = plan_of(model, directory, worker, **values)
    _tell_budget(plan.budget_s, [plan])
    with _ending_on_interrupt(f"the ledger is in {directory}"), _shown(model, plan.budget_s) as on_entry:
        from shoal.tuner.tuning import tune as run

        tuned = run(plan, on_entry)
    _print_outcome(tuned)
    return 0


@click.command(cls=Command)
@click.argument("models", nargs=-1, required=True)
@_amount("--hours", 8.0, "Budget of all models together; the same command goes on another night.")
@_common
@settings(worker=WorkerSettings, models_settings=ModelSettings, tuner=TunerSettings)
def research(
    models: tuple[str, ...],
    hours: float,
    directory: Path | None,
    models_settings: ModelSettings,
    worker: WorkerSettings,
    **values: Any,
) -> int:
    """Tune many models, one after another, over as many nights as it takes.

    Each model has its ledger and its report below --directory. Killed at any point, it repeats no finished trial.

    \b
    shoal research ./model-a ./model-b sentence-transformers/all-MiniLM-L6-v2 --hours 8
    shoal research ./model-a --proposer llm --proposer-url http://127.0.0.1:11434/v1 --proposer-model qwen3
    """
    from shoal.tuner.research import research as run

    root = directory or state_directory() / "research"
    plans = [plan_of(model, root / _slug(model), worker, models=models_settings, **values) for model in models]
    budget_s = min(hours * 3600, sum(plan.budget_s for plan in plans))
    _tell_budget(budget_s, plans)
    with (
        _ending_on_interrupt(f"each model's ledger is in its directory below {root}"),
        _shown(f"{len(models)} models", budget_s) as on_entry,
    ):
        results = run(plans, hours * 3600, on_entry)
    for result in results:
        if result.tuned is not None:
            _print_outcome(result.tuned)
        else:
            click.secho(f"{result.model}: {result.problem}", fg="yellow", err=True)
    return 0 if all(result.tuned is not None for result in results) else 1


def _tell_budget(budget_s: float, plans: Sequence[Plan]) -> None:
    from shoal.tuner.duration import least_s

    least = sum(least_s(plan.space, plan.objective, len(plan.beside)) for plan in plans)
    click.echo(budget_line(budget_s, least), err=True)


@contextlib.contextmanager
def _ending_on_interrupt(place: str) -> Iterator[None]:
    """Ctrl-C ends at once and says how to go on: every finished trial is on the disk, and servers end with us."""
    shows_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
    word = f"\n{shows_cursor}Stopped. The same command goes on where it was; {place}.\n".encode()

    def end(number: int, frame: object) -> None:
        os.write(2, word)
        os._exit(130)

    previous = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _directory_of(model: str) -> Path:
    return state_directory() / "tune" / _slug(model)


def _slug(model: str) -> str:
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in model.strip("/")).strip("-.")[-80:]


@contextlib.contextmanager
def _shown(what: str, budget_s: float) -> Iterator[Progress]:
    """A bar of the budget, and lines for each trial that ends; plain lines where nobody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(finished_style="bar.complete"),  # in 16 colours its own looks like the empty bar's
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    known: list[Entry] = []
    with Bar(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task(f"tuning {what}"[:40], total=budget_s)

        def tell(lines: list[str]) -> None:
            for line in lines:
                console.print(line, markup=False, soft_wrap=True)

        def on_entry(entry: Entry, is_new: bool) -> None:
            progress.update(bar, advance=entry.seconds)
            if not is_new:
                known.append(entry)
                return
            if known:
                tell(resuming_lines(known))
                known.clear()
            tell(lines_of(entry))

        yield on_entry
        if known:
            tell(resuming_lines(known))
        progress.update(bar, completed=budget_s)


def _print_outcome(tuned: Tuned) -> None:
    from shoal.tuner.space import name_of

    figures = tuned.profile.figures
    click.echo(f"{tuned.profile.model}: {name_of(tuned.outcome.winner)}")
    if tuned.outcome.winner:
        click.echo(
            f"  {figures.verified:,.4g} {figures.unit} where the default gives {figures.default:,.4g}: "
            f"{figures.ratio:.3f} times ({figures.low:.3f} to {figures.high:.3f})"
        )
    else:
        click.echo(f"  nothing beat the default beyond doubt; it gives {figures.default:,.4g} {figures.unit}")
    for name, verdict in tuned.outcome.beside.items():
        click.echo(f"  {verdict.ratio:.2f} times ({verdict.low:.2f} to {verdict.high:.2f}) of {name}")
    if tuned.kept.standing is not None:
        click.echo(standing_line(tuned.kept.standing))
    click.echo(f"  profile {tuned.kept.file}\n  report  {tuned.report_file}")
