"""What docs/performance.md says of Shoal beside its peers, from the result file alone; see `page`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.sections import Section, number, table
from shoal.bench.plots import Axis, Bar, bar_chart

__all__ = ["peers"]

Result = dict[str, Any]
Rows = Mapping[str, Result]
FIGURES = {"requests_per_s": "requests/s", "items_per_s": "texts/s", "p50": "p50 ms", "p99": "p99 ms"}
TOLERANCE = 1.02
"""Figures nearer to each other than this are taken for equal."""


def peers(result: Result) -> Section:
    loads: Mapping[str, Rows] = result["loads"]
    parts: list[str] = []
    plots: dict[str, str] = {}
    losses: list[str] = []
    for place, (load, rows) in enumerate(loads.items()):
        parts.append(_load(load, rows, result))
        losses += _behind(load, rows)
        if "closed" in load:
            bars = {"": {name: _bar(row["items_per_s"]) for name, row in rows.items()}}
            plots[f"peers-{place}.svg"] = bar_chart(bars, title=f"Texts a second: {load}", y=Axis("texts", "1/s"))
    if library := result.get("library_texts_per_s"):
        parts.append(_library(library))
        losses += _behind_library(library, loads)
    if result["absent"]:
        reasons = [f"- {name}: {reason}" for name, reason in result["absent"].items()]
        parts.append("### Not measured\n\n" + "\n".join(reasons) + "\n")
    text = (
        f"The demo model; {result['rounds']} rounds of {result['stretch_s']:g} s a load, servers taking turns, medians "
        "of rounds (latency: of all requests). All servers are up all the time, one is loaded at any time. The mixes "
        "are texts of so many tokens, or words. The cosine is the worst one to sentence-transformers in float32. Where "
        "a peer is near the machine's matrix rate, nobody who computes the same can be much faster than it.\n"
    )
    return Section("\n".join([text, _servers(result), _ratios(loads), *parts]), plots, losses)


def _servers(result: Result) -> str:
    rows = [
        (name, _cosine(result["fidelity"], name), number(result["idle_cpu_share"].get(name), ""), one["note"],
         ", ".join(f"{package} {version}" for package, version in one.get("versions", {}).items()))
        for name, one in result["peers"].items()
    ]  # fmt: skip
    return table(("server", "worst cosine", "idle CPU (cores)", "what it is", "versions"), rows)


def _ratios(loads: Mapping[str, Rows]) -> str:
    """Shoal beside the fastest peer of each load, and beside infinity."""
    rows = []
    for load, figures in loads.items():
        if "Poisson" in load or "shoal" not in figures or not (best := _best_peer(figures, "items_per_s")):
            continue
        ours = figures["shoal"]["items_per_s"]["median"]
        others = (best[1], figures.get("infinity", {}).get("items_per_s", {}).get("median"))
        rows.append((load, number(ours), best[0], *(f"{ours / other:.2f}" if other else "" for other in others)))
    if not rows:
        return ""
    return "### In short\n\n" + table(
        ("load", "Shoal texts/s", "fastest peer", "Shoal / fastest peer", "Shoal / infinity"), rows
    )


def _load(load: str, rows: Rows, result: Result) -> str:
    at: Result = result.get("measured_at", {}).get(load, {})
    columns = ["server", *FIGURES.values(), "failed"]
    lines = [[name, *(number(_figure(row, key)) for key in FIGURES), str(row["failed"])] for name, row in rows.items()]
    if "64 texts" in load and at:
        rate = max(at["matrix_rate_gflops"].values())
        columns.append("share of the matrix rate")
        for line, row in zip(lines, rows.values(), strict=True):
            line.append(f"{row['items_per_s']['median'] * at['gflop_per_text'] / rate:.0%}")
    left_out = [f"Left out: {name}, {reason}.\n" for name, reason in result.get("left_out", {}).get(load, {}).items()]
    other = [f"Measured at commit {at['commit']}.\n"] if at and at["commit"] != result["machine"]["commit"] else []
    return "\n".join([f"### {load}\n", table(columns, lines), *left_out, *other])


def _library(library: Mapping[str, Mapping[str, float]]) -> str:
    mixes = list(next(iter(library.values())))
    rows = [(name, *(number(rates.get(mix), "") for mix in mixes)) for name, rates in library.items()]
    return "### As a library, without any server: texts/s of 64 texts\n\n" + table(("library", *mixes), rows)


def _figure(row: Result, key: str) -> float | None:
    value = row["latency_ms"][key] if key.startswith("p") else row[key]["median"]
    return None if value is None else float(value)


def _best_peer(rows: Rows, key: str) -> tuple[str, float] | None:
    values = {name: _figure(row, key) for name, row in rows.items() if name != "shoal"}
    known = {name: value for name, value in values.items() if value is not None}
    choose = min if key.startswith("p") else max
    return choose(known.items(), key=lambda pair: pair[1]) if known else None


def _behind(load: str, rows: Rows) -> Iterator[str]:
    for key in ("items_per_s", "p50", "p99"):
        found = _best_peer(rows, key)
        ours = _figure(rows["shoal"], key) if "shoal" in rows else None
        if found is None or ours is None or (key == "items_per_s" and "Poisson" in load):
            continue
        name, theirs = found
        is_latency = key.startswith("p")
        if (ours > theirs * TOLERANCE) if is_latency else (ours * TOLERANCE < theirs):
            unit = "ms" if is_latency else "texts/s"
            what = f"a lower {key}" if is_latency else "more"
            yield f"{load}: {name} has {what}, {number(theirs)} {unit} beside {number(ours)} {unit}."


def _behind_library(library: Mapping[str, Mapping[str, float]], loads: Mapping[str, Rows]) -> Iterator[str]:
    """`encode` in the caller's own process, beside Shoal through HTTP."""
    for name, rates in library.items():
        for mix, theirs in rates.items():
            ours = loads.get(f"{mix}, 64 texts, closed 2", {}).get("shoal", {}).get("items_per_s", {}).get("median")
            if ours and ours * TOLERANCE < theirs:
                yield f"{mix}: {name} as a library does {number(theirs)} texts/s, Shoal over HTTP {number(ours)}."


def _bar(spread: Mapping[str, float]) -> Bar:
    return Bar(spread["median"], spread["least"], spread["most"])


def _cosine(fidelity: Mapping[str, Mapping[str, float]], name: str) -> str:
    return f"{fidelity[name]['worst']:.6f}" if name in fidelity else ""
