"""`shoal models recommend`: the catalog narrowed to a wish, with the reasons, which `catalog.recommend` finds."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from shoal.cli.options import Command

if TYPE_CHECKING:
    from shoal.catalog.recommend import Row

__all__ = ["recommend"]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


class _Size(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?", value.strip().upper())
        if match is None or match[2] not in _UNITS:
            self.fail(f"{value!r} is not a size: write it like 2GB, 500MB or 1.5GiB.", param, ctx)
        return int(float(match[1]) * _UNITS[match[2]])


@click.command(cls=Command)
@click.option("--operation", type=click.Choice(("embed", "rerank", "classify", "extract")), help="What it is for.")
@click.option("--output", type=click.Choice(("dense", "sparse", "multivector")), help="What embedding returns.")
@click.option("--purpose", default="", help="What its labels are about: sentiment, toxicity, zero_shot, ner, pii, ...")
@click.option("--language", "languages", multiple=True, help="ISO 639 code that it reads; give it again for more.")
@click.option("--max-memory", type=_Size(), default=0, help="What its weights may take, like 2GB or 500MiB.")
@click.option("--max-length", type=click.IntRange(1), help="Tokens of your longest text.")
@click.option("--licence", default="", help="An SPDX id such as apache-2.0, or: commercial.")
@click.option(
    "--precision",
    type=click.Choice(("float32", "bfloat16")),
    default="float32",
    show_default=True,
    help="Number format that memory is counted in.",
)
@click.option("--include-unknown", is_flag=True, help="Keep models whose entry does not state what is asked.")
@click.option("--all", "shows_all", is_flag=True, help="Show the others too, and what speaks against them.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def recommend(
    operation: Any,
    output: Any,
    purpose: str,
    languages: tuple[str, ...],
    max_memory: int,
    max_length: int | None,
    licence: str,
    precision: Any,
    include_unknown: bool,
    shows_all: bool,
    is_json: bool,
) -> None:
    """Narrow the catalog to models that fit, smallest first, with the reason for each.

    Reasons are facts that the catalog states, never scores: measure quality on your own texts. A fact that is not
    stated keeps a model out unless --include-unknown is given. Memory is that of the weights; running takes more.

    \b
    shoal models recommend --operation rerank --language de --max-memory 2GB
    shoal models recommend --output sparse --licence commercial
    shoal models recommend --operation embed --language ja --language en --max-length 8192
    shoal models recommend --operation classify --purpose zero_shot --include-unknown
    shoal models recommend --operation extract --all
    """
    from shoal.catalog import entries
    from shoal.catalog.recommend import Wish
    from shoal.catalog.recommend import recommend as rows_of

    wish = Wish(operation, output, purpose, languages, licence, max_memory, max_length or 0, precision)
    rows = rows_of(entries(), wish)
    fitting = [row for row in rows if row.fits(takes_unknown=include_unknown)]
    others = [row for row in rows if row not in fitting] if shows_all else []
    if is_json:
        _print_json(fitting, others)
        return
    if fitting or others:
        _print_rows(fitting, others)
    _print_summary(rows, fitting, include_unknown)


def _print_json(fitting: Sequence[Row], others: Sequence[Row]) -> None:
    import msgspec

    found = [
        {
            "is_recommended": is_recommended,
            "reasons": row.answers,
            "memory_bytes": row.memory_bytes,
            "obstacle": row.obstacle,
            "model": row.entry,
        }
        for is_recommended, rows in ((True, fitting), (False, others))
        for row in rows
    ]
    click.echo(msgspec.json.format(msgspec.json.encode(found)))


def _print_rows(fitting: Sequence[Row], others: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("model", "weights", "dimensions", "max length", "licence", "served", "why", box=None)
    for row in fitting:
        table.add_row(*_cells(row), "; ".join(answer.reason for answer in row.answers))
    for row in others:
        table.add_row(
            *_cells(row), "out: " + "; ".join(each.reason for each in row.answers if not each.is_met), style="dim"
        )
    # Nobody sees the edge of a pipe: lines are not to be cut there.
    Console(width=None if sys.stdout.isatty() else 1000, highlight=False).print(table)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.entry.id,
        "?" if row.memory_bytes is None else f"{row.memory_bytes / 1e6:,.0f} MB",
        str(row.entry.dimensions or row.entry.vocabulary_size or ""),
        str(row.entry.max_length or "?"),
        row.entry.licence or "?",
        row.obstacle or "yes",
    )


def _print_summary(rows: Sequence[Row], fitting: Sequence[Row], include_unknown: bool) -> None:
    click.echo(f"{len(fitting)} of {len(rows)} models fit.", err=True)
    unknown = Counter(asked for row in rows for asked in row.unknown)
    if unknown and not include_unknown:
        kept_out = sum(1 for row in rows if row.unknown)
        facts = ", ".join(f"{asked} ({count})" for asked, count in unknown.most_common())
        click.echo(f"{kept_out} more are kept out only by what is unknown: {facts}. See --include-unknown.", err=True)
