"""What `shoal bench` says of its measurements: rows for JSON, tables and plots for people."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.bench.measure import Trial
from shoal.bench.plan import Arrivals, Measured
from shoal.bench.plots import Axis, Bar, Series, bar_chart, cdf_chart, line_chart
from shoal.bench.report import Page, Table

__all__ = ["load_page", "rate_page", "row", "shown", "trial_line", "warnings_of"]

PERCENTS = (50.0, 90.0, 99.0, 99.9)


def row(rounds: Sequence[Measured]) -> dict[str, Any]:
    """One target's figures: rates are medians over rounds with their range, latency is of all rounds together."""
    total = Measured.sum(list(rounds), is_parallel=False)
    return {
        "requests": total.num_ok,
        "failed": total.num_failed,
        "errors": total.errors,
        "requests_per_s": _spread([one.requests_per_s for one in rounds]),
        "items_per_s": _spread([one.items_per_s for one in rounds]),
        "tokens_per_s": _spread([one.tokens_per_s for one in rounds]),
        "latency_ms": {
            **{f"p{percent:g}": _finite(total.percentile_ms(percent)) for percent in PERCENTS},
            "mean": _finite(total.latency.mean_s * 1e3),
            "longest": _finite(total.latency.longest_s * 1e3),
        },
        "lag_p99_ms": _finite(total.lag.percentile_s(99) * 1e3),
        "generator_cpu_share": round(total.cpu_share, 3),
        "doubts": _doubts(total, rounds),
        "distribution": [[_finite(seconds * 1e3), round(share, 5)] for seconds, share in total.latency.shares()],
    }


def _doubts(total: Measured, rounds: Sequence[Measured]) -> list[str]:
    """Why figures are none, or those of no server that lived, or of the generator."""
    if total.emptiness:
        return [total.emptiness]
    numbered = enumerate(rounds, 1)
    dead = [f"in round {number} {one.failures}" for number, one in numbered if one.num_failed and not one.num_ok]
    return [*dead, *total.doubts()]


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 2),
        "least": round(min(values), 2),
        "most": round(max(values), 2),
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity: what failed, or was never measured, is null."""
    return round(value, 4) if math.isfinite(value) else None


def load_page(rows: Mapping[str, dict[str, Any]], arrivals: Arrivals, facts: Sequence[tuple[str, str]]) -> Page:
    """The report of the same load on one or more targets."""
    table = Table(
        "Latency and throughput",
        ("target", "req/s", "texts/s", "tokens/s", "p50 ms", "p90", "p99", "p99.9", "failed"),
        [
            (
                name,
                *(shown(one[rate]["median"]) for rate in ("requests_per_s", "items_per_s")),
                shown(one["tokens_per_s"]["median"] or None, "not told"),
                *(shown(one["latency_ms"][f"p{percent:g}"]) for percent in PERCENTS),
                f"{one['failed']:,}",
            )
            for name, one in rows.items()
        ],
        note=_meaning(arrivals),
    )
    curves = [Series(name, [(ms, share) for ms, share in one["distribution"] if ms]) for name, one in rows.items()]
    bars = {"texts/s": {name: _bar(one["items_per_s"]) for name, one in rows.items()}}
    plots = [
        cdf_chart(curves, title="Latency", x=Axis("latency", "ms", is_log=True)),
        bar_chart(bars, title="Throughput, medians and ranges of rounds", y=Axis("texts", "1/s")),
    ]
    return Page("Load test", [("load", arrivals.text), *facts], _warnings(rows), [table], plots)


def rate_page(
    trials: Mapping[str, Sequence[Trial]], limit_ms: float, percent: float, facts: Sequence[tuple[str, str]]
) -> Page:
    """The report of a search for the highest rate."""
    rows, curves, warnings = [], [], []
    for name, tried in trials.items():
        good = [trial for trial in tried if trial.is_good]
        best = max(good, key=lambda trial: trial.rate, default=None)
        at_best = best.measured if best else tried[-1].measured
        rows.append(
            (
                name,
                shown(best.rate if best else 0.0),
                shown(at_best.requests_per_s if best else 0.0),
                shown(at_best.items_per_s if best else 0.0),
                shown(at_best.tokens_per_s if best else 0.0),
                shown(_finite(at_best.percentile_ms(50))),
                shown(_finite(at_best.percentile_ms(percent))),
                str(len(tried)),
            )
        )
        points = sorted((trial.rate, trial.measured.percentile_ms(percent)) for trial in tried)
        curves.append(Series(name, [point for point in points if math.isfinite(point[1])]))
        warnings += _collapse(name, tried)
        unclear = [trial for trial in tried if trial.is_within and not trial.is_good]
        warnings += [
            f"{name}, {trial.rate:,.1f} requests/s held the limit, but does not count: {'; '.join(trial.doubts)}"
            for trial in unclear
        ]
    table = Table(
        f"Highest Poisson rate with p{percent:g} within {limit_ms:g} ms",
        ("target", "offered req/s", "served req/s", "texts/s", "tokens/s", "p50 ms", f"p{percent:g} ms", "trials"),
        rows,
        note="Offered: the rate meant; a short stretch draws more or fewer. Open loop: latency from the intended "
        "time of sending. What fails counts as slower than everything.",
    )
    plot = line_chart(
        curves,
        title=f"p{percent:g} by rate",
        x=Axis("rate", "requests/s"),
        y=Axis(f"p{percent:g}", "ms", is_log=True),
        limit=limit_ms,
    )
    return Page("Highest rate", facts, warnings, [table], [plot])


def trial_line(name: str, trial: Trial) -> str:
    """A trial of a search for the highest rate: what came of it and why it counts as it does."""
    measured = trial.measured
    if measured.emptiness:
        said = [measured.emptiness, "too much"]
    else:
        p99 = measured.percentile_ms(99)
        verdict = "too much" if not trial.is_within else "unclear: " + "; ".join(trial.doubts)
        said = [f"p99 {p99:,.1f} ms" if math.isfinite(p99) else "", "holds" if trial.is_good else verdict]
        said.insert(0, measured.failures)
    return f"{name}: {trial.rate:,.1f} requests/s: {', '.join(part for part in said if part)}"


def _collapse(name: str, tried: Sequence[Trial]) -> list[str]:
    """What is wrong with a search in whose last trials nothing was answered."""
    empty = list(itertools.takewhile(lambda trial: bool(trial.measured.emptiness), reversed(tried)))
    if not empty:
        return []
    trials = "trial" if len(empty) == 1 else f"{len(empty)} trials"
    return [f"INVALID for {name}: in the last {trials} nothing was answered: {empty[0].measured.emptiness}."]


def _meaning(arrivals: Arrivals) -> str:
    if arrivals.is_open:
        return "Open loop: latency from the intended time of sending, so that a stalled server is charged for it."
    return (
        "CLOSED LOOP: each connection waits for its reply before it sends again, so a slow server is asked less often. "
        "Good for throughput; its latency is not what independent callers would see."
    )


def _warnings(rows: Mapping[str, dict[str, Any]]) -> list[str]:
    return [warning for name, one in rows.items() for warning in warnings_of(name, one)]


def warnings_of(name: str, one: Mapping[str, Any]) -> list[str]:
    """What a reader must know before the figures of a `row`."""
    invalid = [f"INVALID for {name}: {doubt}." for doubt in one["doubts"]]
    if not one["requests"]:
        return invalid  # which says already why they failed
    return invalid + [f"{name}: {count:,} requests failed: {reason}" for reason, count in one["errors"].items()]


def _bar(spread: dict[str, float]) -> Bar:
    return Bar(spread["median"], spread["least"], spread["most"])


def shown(value: float | None, absent: str = "failed") -> str:
    """A number for a table, or what stands where there is none."""
    if value is None:
        return absent
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"
