"""What docs/performance.md says of overload and of tenants, from the two result files alone; see `page`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.bench.plots import Axis, Series, bar_chart, line_chart

__all__ = ["fairness", "overload"]

Result = dict[str, Any]
Page = tuple[str, Sequence[str], Sequence[Sequence[str]], dict[str, str], list[str]]
"""Text, columns, rows, plots by file name, where Shoal loses."""

WIRINGS = {"memory": "one process", "nats": "broker, worker, gateway"}
LEAST_GOODPUT = 0.9
MOST_TIMES = 3.0


def overload(result: Result) -> Page:
    """Goodput and latency at each load."""
    deadline_s = result["load"]["deadline_s"]
    rows, losses = [], []
    for key, wiring in WIRINGS.items():
        for factor, point in result[key]["points"].items():
            rows.append(
                (f"{wiring}, {float(factor):g} x", f"{point['goodput_per_s']:.1f}", f"{point['p50_ms']:.0f}",
                 f"{point['p99_ms']:.0f}", f"{point['refused_share']:.0%}", f"{point['late_share']:.1%}")
            )  # fmt: skip
        kept = result[key]["goodput_at_twice_of_at_capacity"]
        if kept < LEAST_GOODPUT:
            losses.append(f"Overload ({wiring}): goodput at twice the capacity is {kept:.0%} of that at capacity.")
    capacities = " and ".join(f"{result[key]['capacity_per_s']:g}" for key in WIRINGS)
    text = (
        f"Open loop, Poisson, each request with {deadline_s:g} s; the device is a fake one, all else is real. Goodput "
        "is what was answered in time; refused is 429, late 504. Load is in times the capacity that a closed loop "
        f"found: {capacities} requests/s.\n"
    )
    columns = ("wiring and load", "goodput 1/s", "p50 ms of the answered", "p99 ms", "refused", "late")
    return text, columns, rows, _overload_plots(result, deadline_s), losses


def _overload_plots(result: Result, deadline_s: float) -> dict[str, str]:
    def lines(name: str, column: str) -> list[Series]:
        return [
            Series(f"{wiring}{name}", [(float(load), point[column]) for load, point in result[key]["points"].items()])
            for key, wiring in WIRINGS.items()
        ]

    load = Axis("load", "times the capacity")
    goodput = line_chart(
        lines("", "goodput_per_s"), title=f"Answered within {deadline_s:g} s", x=load, y=Axis("goodput", "requests/s")
    )
    latency = line_chart(
        [*lines(", median", "p50_ms"), *lines(", 99th percentile", "p99_ms")],
        title="Latency of what was answered",
        x=load,
        y=Axis("latency", "ms"),
        limit=1e3 * deadline_s,
    )
    return {"overload-goodput.svg": goodput, "overload-latency.svg": latency}


def fairness(result: Result) -> Page:
    """What a quiet tenant sees."""
    rows, losses = [], []
    bars: dict[str, dict[str, Any]] = {}
    for key, wiring in WIRINGS.items():
        quiet, times = result[key]["quiet"], result[key]["p99_times_quiet_value"]
        for scene, figures in quiet.items():
            rows.append(
                (f"{wiring}, {scene}", f"{figures['p50_ms']:.0f}", f"{figures['p99_ms']:.0f}",
                 f"{times[scene]:.3g}" if scene in times else "1", f"{figures['refused_share']:.0%}")
            )  # fmt: skip
        bars[wiring] = {scene: quiet[scene]["p99_ms"] for scene in ("alone", "with fairness")}
        if times["with fairness"] > MOST_TIMES:
            losses.append(
                f"Fairness ({wiring}): beside a flood a quiet tenant's 99th percentile is {times['with fairness']:.3g} "
                f"times what it is alone, more than {MOST_TIMES:g}."
            )
    text = (
        "A quiet tenant takes a seventh of the device; beside it, another one sends three times the capacity. Without "
        "fairness, both are one tenant. The device is a fake one, all else is real, and the latency objective is "
        f"{result['load']['latency_objective_ms']} ms: nobody is let into a batch that runs.\n"
    )
    columns = ("wiring and scene", "p50 ms", "p99 ms", "times alone", "refused")
    plot = bar_chart(bars, title="A quiet tenant's 99th percentile beside a flood", y=Axis("latency", "ms"))
    return text, columns, rows, {"fairness.svg": plot}, losses
