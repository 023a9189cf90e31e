"""What the commands of `shoal bench` share: reading arguments, a progress bar, tables and files. Imported on use."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from shoal.bench.arrivals import read_trace
from shoal.bench.asking import with_model
from shoal.bench.neighbours import Collection, read_collection
from shoal.bench.plan import Arrivals
from shoal.bench.report import Page, Table, to_html
from shoal.bench.targets import KINDS, Target, parse_targets
from shoal.bench.texts import MIXES, read_named, read_texts, runs_of_words
from shoal.settings import ClientSettings, named_secret

__all__ = [
    "INTERRUPTED",
    "arrivals",
    "described",
    "described_target",
    "exit_code",
    "interruptible",
    "is_ranked",
    "progress",
    "publish",
    "requests",
    "targets",
    "texts_and_collection",
]

INTERRUPTED = "INTERRUPTED"
"""What a warning begins with if there would have been more to measure."""

_FILE_WIDTH = 120
"""Characters of a table that goes to no terminal."""

_ANY_WIDTH = 10_000

_NUM_REQUESTS = 2048
"""Different requests that are made beforehand; a longer run sends them again."""

_MOST_TEXTS = 500_000
"""Texts of all of them together, as far as four requests allow."""


def targets(written: tuple[str, ...], keys: tuple[str, ...], model: str, server: ClientSettings) -> list[Target]:
    secrets = dict(_secret(key) for key in keys)
    found = parse_targets(written or (f"shoal+{server.url}",), secrets)
    if not written and server.api_key:
        found = [msgspec.structs.replace(target, api_key=server.api_key) for target in found]
    named = [msgspec.structs.replace(target, model=target.model or model) for target in found]
    return [with_model(target) for target in named]


def _secret(key: str) -> tuple[str, str]:
    name, is_pair, variable = key.partition("=")
    if not is_pair:
        raise click.UsageError(f"--key {key} must be NAME=VARIABLE, the name of a target and of a variable.")
    try:
        return name, named_secret(variable)
    except ValueError as error:
        raise click.UsageError(f"--key {key}: {error}") from error


def requests(text: Path | None, mix: str | None, num_items: int, seed: int) -> list[list[str]]:
    """Different requests, as many as are ever needed at once."""
    source = read_texts(text) if text else None
    num_requests = min(_NUM_REQUESTS if num_items < 8 else 256, max(4, _MOST_TEXTS // num_items))
    num_texts = num_requests * num_items
    if mix == "lines" and source is None:
        raise click.UsageError("--mix lines needs --text.")
    if source is not None and mix in (None, "lines"):
        texts = (source * -(-num_texts // len(source)))[:num_texts] if len(source) < num_items else source
    else:
        texts = runs_of_words(MIXES[mix or "short"], num_texts, seed, source)
    return [texts[start : start + num_items] for start in range(0, len(texts) - num_items + 1, num_items)]


def arrivals(rate: float | None, burst: int, trace: Path | None, speed: float, concurrency: int) -> Arrivals:
    if rate is not None and trace is not None:
        raise click.UsageError("--rate and --trace exclude each other.")
    if trace is not None:
        return Arrivals("trace", trace=tuple(read_trace(trace, speed)))
    if rate is not None:
        return Arrivals("bursts" if burst > 1 else "poisson", rate, burst)
    return Arrivals("closed", concurrency=concurrency)


def texts_and_collection(
    text: Path, queries: Path | None, qrels: Path | None, max_texts: int
) -> tuple[list[str], Collection | None]:
    """The first texts of a file, and the whole of it with queries and what is relevant to them, if that is given."""
    documents = read_named(text)
    texts = [text for _, text in documents[:max_texts]]
    if len(texts) < 2:
        raise click.UsageError(f"{text} holds one text; a comparison needs several.")
    if (queries is None) != (qrels is None):
        raise click.UsageError("--queries and --qrels go together.")
    if queries is None or qrels is None:
        return texts, None
    return texts, read_collection(documents, read_named(queries), qrels)


def is_ranked(target: Target) -> bool:
    """Whether the first text of a request is a query, and the others are ranked for it."""
    return KINDS[target.kind].operation == "rerank"


def described(text: Path | None, mix: str | None, items: int) -> str:
    what = f"lines of {text}" if text and mix in (None, "lines") else MIXES[mix or "short"].meaning
    return f"{items} texts each, {what}" + ("" if text else ", of common English words")


def described_target(target: Target) -> str:
    return f"{target.name}: {target.kind} at {target.url}" + (f", {target.model}" if target.model else "")


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, so that generator processes are ended and what they shared is given back."""
    previous = signal.getsignal(signal.SIGINT)
    if previous is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def progress(total: int | None, expected: str, *, is_shown: bool) -> Iterator[Callable[[], None]]:
    """A bar on standard error, if that is a terminal."""
    if not is_shown or not sys.stderr.isatty():
        yield lambda: None
        return
    columns = (SpinnerColumn(), TextColumn("measuring"), BarColumn(), TimeElapsedColumn(), TextColumn(f"of {expected}"))
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.update(task, advance=1)


def exit_code(page: Page) -> int:
    """130 if Ctrl-C ended it early, 1 if its figures are none."""
    if any(warning.startswith(INTERRUPTED) for warning in page.warnings):
        return 130
    return 1 if any(warning.startswith("INVALID") for warning in page.warnings) else 0


def publish(page: Page, result: dict[str, Any], json_file: Path | None, html_file: Path | None) -> None:
    """Tables to standard output, figures and report to files."""
    for table in page.tables:
        _print(table)
    for warning in page.warnings:
        click.secho(warning, fg="red", err=True)
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2) + "\n")
    if html_file is not None:
        html_file.write_text(to_html(page))
        click.echo(f"report: {html_file}", err=True)


def _print(table: Table) -> None:
    shown = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD, caption=table.note or None)
    for index, name in enumerate(table.columns):
        shown.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    for row in table.rows:
        shown.add_row(*row)
    # Never narrower than its digits: a terminal breaks a line, rich would cut numbers.
    needed = Console(width=_ANY_WIDTH).measure(shown).maximum
    Console(width=max(needed, Console().width if sys.stdout.isatty() else _FILE_WIDTH)).print(shown)
