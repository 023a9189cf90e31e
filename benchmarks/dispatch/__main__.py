"""Shoal's queue against routers: the highest Poisson rate at which 99 % of requests are answered within L.

    python -m benchmarks.dispatch [--quick] [--json benchmarks/results/dispatch.json [--keep]]

Eight workers with the fake runtime serve K models, all loaded everywhere. Requests come as Poisson, for models that are
equally popular or by Zipf's law. Dispatch is by Shoal's gateway, broker and standing pulls, or by a router that pushes
to eight `shoal serve` processes with the very same runtime: sglang-router and vllm-router as they come from PyPI, with
each policy, and a plain router of ours with three more. All systems of a cell are up at the same time and take turns,
trial by trial. Where there are several models, each shipped policy first has one trial at 1.25 times what round robin
should do by simulation; the two that answer most within L are searched further, beside Shoal and a plain router that
hashes by model with bounded loads. The same policies are simulated, which also says where each search starts. The CPU's
share is printed: where it is near 100 %, the cores are what is measured, and a longer a (and trial) is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import environments, machine
from benchmarks.dispatch.systems import ROUTERS, Device, System, Tally, cpu_s, routed, shoal_cluster, workers
from shoal.bench.measure import Generator, RateSearch, Trial, find_rates, generator, try_rate
from shoal.bench.plan import Arrivals, Load
from shoal.bench.simulate import Fleet, goodput, zipf
from shoal.bench.targets import Target
from shoal.worker.cost import CostModel

NUM_WORKERS = 8
REQUEST_TOKENS = 24
BYTES_A_TOKEN = 4
NUM_REQUESTS = 8192
SIMULATED_S = 60.0
BASELINES = ("sglang-router power_of_two", "vllm-router round_robin", "plain round_robin")
"""Compared where K = 1, where all that push without looking at the model come out alike."""

SCREENED_AT = 1.25
"""Rate at which shipped policies are compared first, in units of the simulated goodput of round robin."""

FINALISTS = 2
WARM_UP_S = 4.0
BESIDE = "plain bounded_hash"
"""Searched in any case: the strongest policy that we know of that pushes."""

SIMULATED = {
    "round_robin": "round robin", "random": "random", "power_of_two": "power of two",
    "shortest_polled": "shortest, polled", "bounded_hash": "bounded-load hash",
}  # fmt: skip


class Cell(msgspec.Struct, frozen=True):
    """One comparison: how many models, how popular, and L in units of a."""

    models: str
    objective_over_a: float
    systems: tuple[str, ...]

    @property
    def weights(self) -> tuple[float, ...]:
        number = int(self.models.removesuffix("z"))
        return zipf(number) if self.models.endswith("z") else (1.0,) * number


def cells(options: argparse.Namespace) -> list[Cell]:
    """What is compared."""
    chosen = options.systems or list(ROUTERS)
    baselines = [name for name in BASELINES if name in chosen]
    found = []
    for models in options.models:
        for objective in options.objectives:
            is_one = models == "1"
            if is_one or objective >= 10 or options.all:
                found.append(Cell(models, objective, tuple(baselines if is_one and not options.all else chosen)))
    return found


def requests(cell: Cell) -> tuple[list[list[str]], list[str]]:
    """Texts and models of the requests, in the order in which they are sent."""
    chooser = random.Random(5)  # noqa: S311
    texts = [[f"{number:08x}".ljust(REQUEST_TOKENS * BYTES_A_TOKEN, "x")] for number in range(NUM_REQUESTS)]
    models = chooser.choices(range(len(cell.weights)), cell.weights, k=NUM_REQUESTS)
    return texts, [f"m{model}" for model in models]


def simulated(cell: Cell, cost: CostModel, seconds: float) -> dict[str, dict[str, float]]:
    """Goodput, busy share and batch fill of each policy, by simulation."""
    fleet = Fleet(NUM_WORKERS, cell.weights, cost, cell.objective_over_a * cost.a_s, REQUEST_TOKENS)
    rows = {}
    for policy in ("pull", *dict.fromkeys(SIMULATED.values())):
        rate, outcome = goodput(fleet, policy, seconds)
        rows[policy] = {
            "goodput": round(rate, 1),
            "busy_share": round(outcome.busy_share, 3) if outcome else 0.0,
            "batch_fill": round(outcome.batch_fill, 3) if outcome else 0.0,
        }
    return rows


class Meter:
    """What devices and the machine's CPU did during each trial."""

    def __init__(self, systems: Sequence[System], cost: CostModel) -> None:
        self._systems = {system.name: system for system in systems}
        self._last = {tuple(system.metrics): system.tally() for system in systems}
        self._last_cpu_s, self._last_time = cpu_s(), time.perf_counter()
        self.rows: dict[str, list[dict[str, Any]]] = {system.name: [] for system in systems}

    def read(self, target: Target, trial: Trial) -> None:
        """Note a trial that has just ended."""
        system = self._systems[target.name]
        key, now = tuple(system.metrics), system.tally()
        before = self._last[key]
        self._last[key] = now
        used, elapsed = cpu_s() - self._last_cpu_s, time.perf_counter() - self._last_time
        self._last_cpu_s, self._last_time = cpu_s(), time.perf_counter()
        row = {
            "rate": round(trial.rate, 2),
            "is_good": trial.is_good,
            "p50_ms": _finite(trial.measured.percentile_ms(50)),
            "p99_ms": _finite(trial.measured.percentile_ms(99)),
            "answered_per_s": round(trial.measured.requests_per_s, 1),
            **_device_shares(before, now, trial.measured.seconds),
            "cpu_share_of_machine": round(used / elapsed / (os.cpu_count() or 1), 3),
            "doubts": trial.doubts,
        }
        self.rows[target.name].append(row)
        print(f"  {target.name:34} {json.dumps(row)}", file=sys.stderr, flush=True)


def _device_shares(before: Tally, now: Tally, seconds: float) -> dict[str, float]:
    batches = max(1.0, now.batches - before.batches)
    return {
        "busy_share": round((now.busy_s - before.busy_s) / NUM_WORKERS / max(seconds, 1e-9), 3),
        "batch_fill": round((now.fill - before.fill) / batches, 3),
    }


def _finite(value: float) -> float | None:
    return round(value, 1) if value < float("inf") else None


def measure(cell: Cell, cost: CostModel, senders: Generator, options: argparse.Namespace) -> dict[str, Any]:
    """One cell: all systems started, searched in turns, and stopped."""
    objective_s = cell.objective_over_a * cost.a_s
    device = Device(cost.a_s, cost.c_s, objective_s, len(cell.weights))
    expected = simulated(cell, cost, SIMULATED_S / 4 if options.quick else SIMULATED_S)
    texts, models = requests(cell)
    with contextlib.ExitStack() as stack:
        systems = [stack.enter_context(shoal_cluster(device, NUM_WORKERS))]
        urls = stack.enter_context(workers(device, NUM_WORKERS))
        systems += [stack.enter_context(routed(name, urls, options.environments)) for name in cell.systems]
        loads = [
            Load(
                Target(system.name, "openai", system.url),
                Arrivals("poisson"),
                texts,
                options.seconds,
                models=models,
                max_connections=4096,
            )
            for system in systems
        ]
        screening: dict[str, float] = {}
        if is_screened(cell, options):
            rate = SCREENED_AT * expected["round robin"]["goodput"]
            screening = screen(senders, loads, rate, objective_s)
            chosen = finalists(screening)
            loads = [load for load in loads if load.target.name in ("shoal", BESIDE, *chosen)]
        starts = {load.target.name: 0.9 * max(1.0, expected[_policy(load.target.name)]["goodput"]) for load in loads}
        searches = {name: RateSearch(rate, options.precision, 1.0, growth=1.4) for name, rate in starts.items()}
        for load in loads:  # whoever was screened has met this load before
            warming = msgspec.structs.replace(load, duration_s=WARM_UP_S)
            try_rate(senders, warming, 0.5 * starts[load.target.name], objective_s, 99.0)
        meter = Meter([system for system in systems if system.name in searches], cost)
        find_rates(senders, loads, searches, objective_s, 99.0, meter.read)
    result = {"simulated": expected, "systems": {name: best(rows) for name, rows in meter.rows.items()}}
    return {**result, "screening": {"rate": round(rate, 1), "share_within": screening}} if screening else result


def is_screened(cell: Cell, options: argparse.Namespace) -> bool:
    """Whether there are more shipped policies than are searched."""
    return not options.all and sum(_is_shipped(name) for name in cell.systems) > FINALISTS and cell.models != "1"


def screen(senders: Generator, loads: Sequence[Load], rate: float, objective_s: float) -> dict[str, float]:
    """Of each shipped policy, the share of requests answered within L at that rate."""
    shares = {}
    for load in loads:
        if _is_shipped(load.target.name):
            trial = try_rate(senders, load, rate, objective_s, 99.0)
            shares[load.target.name] = round(trial.measured.latency.share_within(objective_s), 4)
            print(f"  {load.target.name:34} {shares[load.target.name]:.1%} within L", file=sys.stderr, flush=True)
    return shares


def finalists(shares: dict[str, float]) -> list[str]:
    """The shipped policies that answer most within L."""
    return sorted(shares, key=lambda name: -shares[name])[:FINALISTS]


def _is_shipped(name: str) -> bool:
    return not name.startswith(("plain", "shoal"))


def _policy(system: str) -> str:
    """What simulates a system best: routers that know nothing of models differ little from power of two."""
    return "pull" if system == "shoal" else SIMULATED.get(ROUTERS[system], "power of two")


def best(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The best good trial, and all of them."""
    good = [row for row in rows if row["is_good"]]
    top = max(good, key=lambda row: float(row["rate"]), default={"rate": 0.0})
    return {"goodput": top["rate"], "at_goodput": top, "trials": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=["1", "8", "16z"], help="K; with z popular by Zipf's law")
    parser.add_argument("--objectives", nargs="*", type=float, default=[20.0, 5.0], help="L in units of a")
    parser.add_argument("--systems", nargs="*", choices=list(ROUTERS), help="routers; default: all")
    parser.add_argument("--all", action="store_true", help="all routers and both L in every cell")
    parser.add_argument("--a-ms", type=float, default=200.0)
    parser.add_argument("--c-us", type=float, default=500.0)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a trial")
    parser.add_argument("--precision", type=float, default=0.06)
    parser.add_argument("--quick", action="store_true", help="K = 8, L = 20 a, two routers, short trials")
    parser.add_argument("--environments", type=Path, default=environments.ROOT)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", action="store_true", help="keep the cells of that file that are not measured now")
    options = parser.parse_args()
    if options.quick:
        options.models, options.objectives, options.seconds, options.precision = ["8"], [20.0], 6.0, 0.2
        options.systems = options.systems or ["sglang-router power_of_two", "plain bounded_hash"]
    cost = CostModel(options.a_ms / 1e3, options.c_us / 1e6)
    chosen = cells(options)
    num_trials = sum(
        len(cell.systems) + 6 * (FINALISTS + 2) if is_screened(cell, options) else 6 * (len(cell.systems) + 1)
        for cell in chosen
    )
    print(f"about {num_trials * (options.seconds + 4) / 60 + len(chosen):.0f} minutes", file=sys.stderr, flush=True)
    result: dict[str, Any] = {
        "machine": machine.describe(),
        "workers": NUM_WORKERS,
        "a_ms": options.a_ms,
        "c_us": options.c_us,
        "request_tokens": REQUEST_TOKENS,
        "trial_s": options.seconds,
    }
    by = {key: result["machine"][key] for key in ("command", "commit")}
    rows = kept(options.json, result, chosen) if options.keep else []
    with generator(1) as senders:
        for cell in chosen:
            print(f"K = {cell.models}, L = {cell.objective_over_a:g} a", file=sys.stderr, flush=True)
            row = {"models": cell.models, "objective_over_a": cell.objective_over_a, **by}
            rows.append({**row, **measure(cell, cost, senders, options)})
            report(rows[-1])
            if options.json:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                result["cells"] = sorted(rows, key=_place)
                options.json.write_text(json.dumps(result, indent=2) + "\n")


def _place(row: dict[str, Any]) -> tuple[int, float]:
    """Few models first, then what leaves more time."""
    return int(row["models"].removesuffix("z")), -row["objective_over_a"]


def kept(path: Path, result: dict[str, Any], chosen: Sequence[Cell]) -> list[dict[str, Any]]:
    """Cells that the file holds and that are not measured again, each with what measured it; none of other devices."""
    if not path.exists():
        return []
    known = json.loads(path.read_text())
    if any(known[key] != result[key] for key in ("workers", "a_ms", "c_us", "request_tokens")):
        raise SystemExit(f"{path} is about other devices; give another file, or leave --keep out")
    again = {(cell.models, cell.objective_over_a) for cell in chosen}
    by = {key: known["machine"][key] for key in ("command", "commit")}
    return [by | cell for cell in known["cells"] if (cell["models"], cell["objective_over_a"]) not in again]


def report(cell: dict[str, Any]) -> None:
    """A line a system."""
    pull = cell["systems"]["shoal"]["goodput"]
    print(f"K = {cell['models']}, L = {cell['objective_over_a']:g} a", flush=True)
    for name, row in cell["systems"].items():
        top = row["at_goodput"]
        expected = cell["simulated"][_policy(name)]["goodput"]
        ratio = f"pull / this {pull / row['goodput']:.2f}" if row["goodput"] else "never within L"
        print(
            f"  {name:34} {row['goodput']:7.1f} requests/s (simulated {expected:7.1f})   {ratio}   "
            f"busy {top.get('busy_share', 0):.0%}   batches {top.get('batch_fill', 0):.0%} full   "
            f"CPU {top.get('cpu_share_of_machine', 0):.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
