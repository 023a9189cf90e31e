"""What docs/performance.md says of CPU a request as things grow, from the result file alone; see `page`.

A line is flat, or it says why not. Why it grows is known from profiles, whether it does from the figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.bench.plots import Axis, Series, line_chart

__all__ = ["scaling"]

Row = Mapping[str, Any]
Part = tuple[str, Sequence[str], list[list[float]], str]
"""Heading, columns, rows, what the figures mean."""

LABELS = {"items": "texts a request", "models": "models", "tenants": "tenants", "depth": "messages waiting"}
FLAT = 1.25
"""A line that ends at so many times its start, or less, is flat: rounds on this machine differ by as much."""

REASONS = {
    "items": "A text costs what is done for a text: tokens, a row of the batch, its part of the reply.",
    "models": "Requests for the same model share a batch, a reply's system calls and the broker's work on a consumer; "
    "spread over many models, each batch holds one request.",
    "tenants": "Each key is looked up by its hash; with more tenants, less of what they need is in the CPU's caches.",
    "depth": "What waits lies in another lane; the broker keeps it in memory.",
}


def scaling(result: Mapping[str, Any]) -> tuple[list[Part], dict[str, str], list[str]]:
    """A part for each line, their plots by file name, and what failed."""
    parts: list[Part] = []
    plots: dict[str, str] = {}
    for key, label in LABELS.items():
        rows = [row for row in result.get(key, []) if "error" not in row]
        if not rows:
            continue
        columns = [name for name in rows[0] if name != key]
        lines = [name for name in columns if name in ("gateway", "worker", "broker") or name.endswith("cpu_us")]
        names = [label, *(name.replace("_", " ") for name in columns)]
        parts.append((f"By {label}", names, [[row[name] for name in (key, *columns)] for row in rows],
                      _meaning(key, rows, lines)))  # fmt: skip
        series = [Series(_name(name), [(max(row[key], 1), row[name]) for row in rows]) for name in lines]
        plots[f"scaling-{key}.svg"] = line_chart(
            series, title=f"CPU a request by {label}", x=Axis(label, is_log=True), y=Axis("CPU", "µs")
        )
    failed = [row for key in LABELS for row in result.get(key, []) if "error" in row]
    return parts, plots, [f"Scaling: {row['error']}." for row in failed]


def _meaning(key: str, rows: Sequence[Row], lines: Sequence[str]) -> str:
    first, last = rows[0], rows[-1]
    if key == "items":
        texts = last[key] - first[key]
        each = ", ".join(f"{name} {(last[name] - first[name]) / texts:.1f} µs" for name in lines)
        return f"Each text more costs: {each}. {REASONS[key]}"
    growth = {_name(name): last[name] / first[name] for name in lines}
    flat = [name for name, times in growth.items() if times <= FLAT]
    grown = [f"{name} {times:.2f} x" for name, times in growth.items() if times > FLAT]
    says = f"From {first[key]:,} to {last[key]:,}: flat (within {FLAT:g} x): {', '.join(flat) or 'none'}."
    return f"{says} Grows: {', '.join(grown)}. {REASONS[key]}" if grown else says


def _name(column: str) -> str:
    return column.removesuffix("_cpu_us").replace("_", " ")
