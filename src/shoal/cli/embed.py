"""`shoal embed`: texts of the command line, a file or standard input to vectors, by a running server."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli.options import Command, Number, settings
from shoal.errors import ShoalError
from shoal.settings import ClientSettings

if TYPE_CHECKING:
    from shoal.cli.embedding import Outcome, Tally
    from shoal.cli.texts import Texts

__all__ = ["embed"]

_EXTENSIONS = (".npy", ".jsonl", ".parquet")


@click.command(cls=Command)
@click.argument("texts", nargs=-1)
@click.option("--file", "-f", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
              help="A text a line; a .jsonl holds objects; .gz is unpacked; - is standard input.")  # fmt: skip
@click.option("--field", help="Read JSON lines and take the text from this key.  [default for .jsonl: text]")
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path),
              help="A .npy, .jsonl or .parquet file; without it, JSON lines go to standard output.")  # fmt: skip
@click.option("--model", "-m", help="Model to use; not needed where the server serves only one.")
@click.option("--dimensions", type=click.IntRange(1), help="Cut vectors to so many numbers (matryoshka models).")
@click.option("--prompt-name", help="One of the model's own prompts, put in front of each text.")
@click.option("--dtype", type=click.Choice(["float32", "float16"]), default="float32", show_default=True,
              help="Number format of .npy and .parquet.")  # fmt: skip
@click.option("--normalize/--no-normalize", default=None, help="L2-normalise; by default as the model declares.")
@click.option("--truncate/--no-truncate", default=None, help="Cut texts that are too long, or stop at the first.")
@click.option("--keep-going", is_flag=True, help="Leave out lines that are refused, name them, and end with 1.")
@click.option("--batch-items", type=click.IntRange(1), default=256, show_default=True, help="Texts in a request.")
@click.option("--concurrency", type=click.IntRange(1), default=4, show_default=True, help="Requests at once.")
@click.option("--timeout-s", type=Number(0, min_open=True), default=60.0, show_default=True,
              help="Seconds for each request, retries included.")  # fmt: skip
@click.option("--quiet", "-q", is_flag=True, help="No progress bar and no summary.")
@settings(server=ClientSettings)
def embed(
    texts: tuple[str, ...],
    file: Path | None,
    field: str | None,
    output: Path | None,
    keep_going: bool,
    batch_items: int,
    concurrency: int,
    timeout_s: float,
    quiet: bool,
    server: ClientSettings,
    **fields: Any,
) -> int:
    """Embed TEXTS, a file or standard input with a running server.

    \b
    shoal embed "some text" "another"
    shoal embed --file corpus.jsonl --field body --output vectors.parquet
    zcat corpus.txt.gz | shoal embed --output vectors.npy
    """
    from shoal.cli.embedding import Tally, embed_texts
    from shoal.cli.sinks import open_sink
    from shoal.client import Client

    source = _source(texts, file, field)
    _check(output, keep_going)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what was finished is named
    tally = Tally()
    started = time.perf_counter()
    client = Client(
        server.url, api_key=server.api_key, timeout_s=timeout_s, batch_items=batch_items, concurrency=concurrency
    )
    try:
        with (
            client,
            _progress(source, is_shown=not quiet and output is not None) as on_outcome,
            open_sink(output, sys.stdout.buffer) as sink,
        ):
            embed_texts(
                source,
                sink,
                client,
                fields,
                tally,
                batch_items=batch_items,
                concurrency=concurrency,
                is_kept_going=keep_going,
                on_outcome=on_outcome,
            )
    except (ShoalError, KeyboardInterrupt):
        if output is not None and tally.num_texts:
            click.echo(f"{tally.num_texts} texts were finished: {output}.part holds them.", err=True)
        raise
    if not quiet and output is not None:
        click.echo(_summary(tally, output, time.perf_counter() - started), err=True)
    return 1 if tally.num_rejected else 0


def _source(texts: tuple[str, ...], file: Path | None, field: str | None) -> Texts:
    from shoal.cli.texts import Arguments, open_lines

    stdin = sys.stdin.buffer
    is_dash = texts == ("-",)
    if texts and not is_dash:
        if file is not None:
            raise click.UsageError("Give texts or a --file, not both.")
        return Arguments(texts)
    if file is None and not is_dash and stdin.isatty():
        raise click.UsageError("No texts: give some, a --file, or pipe them in.")
    lines = open_lines(None if file == Path("-") else file, field, stdin)
    click.get_current_context().call_on_close(lines.close)
    return lines


def _check(output: Path | None, keep_going: bool) -> None:
    if output is None:
        return
    if output.suffix not in _EXTENSIONS:
        raise click.UsageError(f"--output {output} must end in one of {', '.join(_EXTENSIONS)}.")
    if not output.parent.is_dir():
        raise click.UsageError(f"--output {output}: there is no directory {output.parent}.")
    if output.suffix == ".npy" and keep_going:
        raise click.UsageError(
            "--keep-going leaves lines out, and rows of a .npy could then not be matched to lines: "
            "write .jsonl or .parquet, which number them."
        )


@contextlib.contextmanager
def _progress(source: Texts, *, is_shown: bool) -> Iterator[Callable[[Outcome], None]]:
    """A bar on standard error if that is a terminal; lines left out are named in any case."""
    if not is_shown or not sys.stderr.isatty():
        yield _name_rejected
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TextColumn("{task.fields[texts]:,} texts"), TextColumn("{task.fields[rate]:,.0f} texts/s"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=source.total, texts=0, rate=0.0)
        started, num_texts = time.perf_counter(), 0

        def on_outcome(outcome: Outcome) -> None:
            nonlocal num_texts
            num_texts += len(outcome.lines)
            rate = num_texts / (time.perf_counter() - started)
            bar.update(task, completed=source.num_read, texts=num_texts, rate=rate)
            _name_rejected(outcome)

        yield on_outcome


def _name_rejected(outcome: Outcome) -> None:
    for _, error in outcome.rejected:
        click.echo(f"left out: {error.message}", err=True)


def _summary(tally: Tally, output: Path, seconds: float) -> str:
    rate = tally.num_texts / seconds
    text = f"{output}: {tally.num_texts:,} vectors of {tally.dimensions} in {seconds:.1f} s ({rate:,.0f} texts/s)"
    if tally.num_truncated:
        text += f"; {tally.num_truncated:,} texts were cut to the model's length"
    if tally.num_rejected:
        text += f"; {tally.num_rejected:,} lines were left out"
    return text
