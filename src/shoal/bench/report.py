"""A report as people read it: tables, plots, warnings, in one HTML file that needs nothing else. Knows no benchmark."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Page", "Table", "to_html"]


class Table(NamedTuple):
    """Cells in rows; the first column names the row, the others are numbers. `note` stands under it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


class Page(NamedTuple):
    """What a report shows, in this order.

    Attributes:
        facts: (what, value): how it was measured.
        warnings: why the figures should not be trusted.
        plots: SVG.
    """

    title: str
    facts: Sequence[tuple[str, str]]
    warnings: Sequence[str]
    tables: Sequence[Table]
    plots: Sequence[str]


_STYLE = """
:root{color-scheme:light dark;--ink:#1d2129;--soft:#5c6370;--line:#e3e6ea;--paper:#fff;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#a9b0bc;--line:#343a44;--paper:#14171c;--bad:#ff8a80}}
body{font:15px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif;color:var(--ink);background:var(--paper);
max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem} h2{font-size:1.1rem;margin:2rem 0 .5rem} .note{color:var(--soft)}
.wide{overflow-x:auto} table{border-collapse:collapse;width:100%}
th,td{padding:.35rem .7rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left} th{color:var(--soft);font-weight:600}
td{font-variant-numeric:tabular-nums} .bad{color:var(--bad);border-left:3px solid;padding-left:.8rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1.2rem} dt{color:var(--soft)} dd{margin:0}
svg{width:100%;height:auto;margin:1rem 0}
"""


def to_html(page: Page) -> str:
    """The page."""
    facts = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in page.facts)
    parts = [
        f"<h1>{_text(page.title)}</h1>",
        *(f'<p class="bad">{_text(warning)}</p>' for warning in page.warnings),
        *(_table(table) for table in page.tables),
        *page.plots,
        f"<h2>How it was measured</h2><dl>{facts}</dl>",
    ]
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{_text(page.title)}</title>'
    )
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    note = f'<p class="note">{_text(table.note)}</p>' if table.note else ""
    return f'<h2>{_text(table.title)}</h2><div class="wide"><table><tr>{head}</tr>{rows}</table></div>{note}'


def _text(text: str) -> str:
    return html.escape(text)
