"""What a search found, for people: rate against latency, every load a point, and what was tried and lost."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.bench.plots import Axis, Bar, Series, bar_chart, line_chart, number
from shoal.bench.report import Page, Table
from shoal.tuner.ledger import Entry
from shoal.tuner.space import name_of

__all__ = ["frontier_plot", "metric_of", "page_of", "verified"]


def page_of(title: str, entries: Sequence[Entry], facts: Sequence[tuple[str, str]], unit: str) -> Page:
    """The report of one ledger."""
    fits = [entry for entry in entries if entry.stage == "fit"]
    races = [entry for entry in entries if entry.stage.startswith(("rung", "final"))]
    verdicts = [entry for entry in entries if entry.stage == "verdict"]
    beside = [entry for entry in entries if entry.stage == "beside"]
    tables = [_verdict_table(verdicts), _beside_table(beside), _race_table(fits, races, unit)]
    tables += [_fit_table(fits, unit), _lost_table(fits)]
    plots = [frontier_plot(races), _prediction_plot(fits, races, unit), _cost_plot(fits), _pair_plot(races, unit)]
    return Page(
        title, facts, _warnings(verdicts), [table for table in tables if table.rows], [plot for plot in plots if plot]
    )


def verified(races: Sequence[Entry]) -> dict[str, list[float]]:
    """Figures of each configuration, by name, in the order of the races."""
    found: dict[str, list[float]] = {}
    for race in races:
        for name, figure in race.figures.items():
            found.setdefault(name, []).append(figure)
    return found


def _warnings(verdicts: Sequence[Entry]) -> list[str]:
    if any(entry.status == "keep" for entry in verdicts):
        return []
    return ["No configuration of the space beat the default beyond doubt: the profile says so, and the default stays."]


def _verdict_table(verdicts: Sequence[Entry]) -> Table:
    rows = [
        (
            name_of(entry.configuration),
            entry.status,
            f"{entry.figures['ratio']:.3f}",
            f"{entry.figures['low']:.3f} to {entry.figures['high']:.3f}",
        )
        for entry in verdicts
    ]
    note = "Pairs on fresh seeds. Kept only if the interval lies above 1 and the gain is at least 2 %."
    return Table("Verdicts", ("configuration", "verdict", "times what stood before", "99 % interval"), rows, note)


def _beside_table(beside: Sequence[Entry]) -> Table:
    rows = [
        (name_of(entry.configuration), f"{entry.figures['ratio']:.2f}",
         f"{entry.figures['low']:.2f} to {entry.figures['high']:.2f}")
        for entry in beside
    ]  # fmt: skip
    return Table("Beside what you named", ("configuration", "the best, times this", "99 % interval"), rows)


def _race_table(fits: Sequence[Entry], races: Sequence[Entry], unit: str) -> Table:
    predicted = {name_of(entry.configuration): entry.figures.get("predicted", 0.0) for entry in fits}
    rows = []
    for name, figures in verified(races).items():
        middle = sorted(figures)[len(figures) // 2]
        error = f"{predicted[name] / middle - 1:+.0%}" if middle and name in predicted else "?"
        rows.append((name, number(predicted.get(name, 0.0)), number(middle), error, str(len(figures))))
    return Table(
        f"Predicted and verified ({unit})", ("configuration", "predicted", "verified, median", "error", "races"), rows
    )


def _fit_table(fits: Sequence[Entry], unit: str) -> Table:
    kept = sorted((e for e in fits if e.status == "measured"), key=lambda e: -e.figures.get("predicted", 0.0))
    rows = [
        (
            name_of(entry.configuration),
            number(entry.figures.get("predicted", 0.0)),
            f"{entry.figures.get('a_ms', 0.0):.2f}",
            f"{entry.figures.get('c_us', 0.0):.1f}",
            f"{entry.figures.get('p1_cosine', 0.0):.6f}",
            metric_of(entry),
        )
        for entry in kept
    ]
    columns = ("configuration", f"predicted ({unit})", "a ms", "c us", "p1 cosine", "task's metric")
    note = "S(batch) = a + c * tokens. The task's metric is measured where the number format is not float32."
    return Table("Fitted, most promising first", columns, rows, note)


def metric_of(entry: Entry) -> str:
    """A task's metric beside float32's; "" where a fit measured none."""
    if "metric" not in entry.figures:
        return ""
    return f"{entry.figures['metric']:.4f} (float32: {entry.figures['float32_metric']:.4f})"


def _lost_table(fits: Sequence[Entry]) -> Table:
    lost = [entry for entry in fits if entry.status in ("discard", "crash")]
    rows = [(name_of(entry.configuration), entry.status, entry.reason, metric_of(entry)) for entry in lost]
    return Table("Tried and lost", ("configuration", "outcome", "reason", "task's metric"), rows)


def frontier_plot(races: Sequence[Entry]) -> str:
    """p99 by rate: every load of every race, not joined, since equal loads differ from each other."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for race in races:
        for name, points in race.points.items():
            lines.setdefault(name, []).extend(point for point in points if point[1] > 0)
    series = [Series(name, sorted(points)) for name, points in lines.items() if points]
    x, y = Axis("rate", "requests/s"), Axis("p99", "ms", is_log=True)
    title = "Rate against latency: every load a point"
    return line_chart(series, title=title, x=x, y=y, is_joined=False) if series else ""


def _prediction_plot(fits: Sequence[Entry], races: Sequence[Entry], unit: str) -> str:
    predicted = {name_of(entry.configuration): entry.figures.get("predicted", 0.0) for entry in fits}
    bars = {
        name: {"predicted": Bar(predicted.get(name, 0.0)), "verified": _bar(figures)}
        for name, figures in verified(races).items()
    }
    return bar_chart(bars, title="Predicted and verified", y=Axis("figure", unit)) if bars else ""


def _bar(figures: Sequence[float]) -> Bar:
    return Bar(sorted(figures)[len(figures) // 2], min(figures), max(figures))


def _cost_plot(fits: Sequence[Entry]) -> str:
    """Seconds of a batch by tokens, a line a configuration: the frontier that each could reach."""
    series = [
        Series(
            name_of(entry.configuration),
            [(size, entry.figures["a_ms"] + entry.figures["c_us"] * size / 1e3) for size in (16, 128, 1024, 4096)],
        )
        for entry in fits
        if entry.status == "measured" and "a_ms" in entry.figures
    ]
    if not series:
        return ""
    x, y = Axis("batch", "tokens", is_log=True), Axis("time", "ms", is_log=True)
    return line_chart(series[:8], title="What a batch costs", x=x, y=y)


def _pair_plot(races: Sequence[Entry], unit: str) -> str:
    """Each race a point, in the order of the races."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for place, race in enumerate(races, 1):
        for name, figure in race.figures.items():
            lines.setdefault(name, []).append((place, figure))
    series = [Series(name, points) for name, points in lines.items()]
    return line_chart(series, title="Race by race", x=Axis("race"), y=Axis("figure", unit)) if series else ""
