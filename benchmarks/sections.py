"""What a result file becomes on docs/performance.md, and how tables and numbers are written there; see `page`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["Section", "number", "table"]


class Section(NamedTuple):
    """What a result file becomes.

    Attributes:
        plots: SVG by file name.
        losses: where Shoal is behind, a sentence each.
    """

    text: str
    plots: Mapping[str, str] = {}
    losses: Sequence[str] = ()


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    marks = "|".join(["---", *(["---:"] * (len(columns) - 1))])
    lines = ["| " + " | ".join(columns) + " |", f"|{marks}|", *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join(lines) + "\n"


def number(value: float | None, absent: str = "failed") -> str:
    if value is None:
        return absent
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"
