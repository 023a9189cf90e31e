"""How a server holds out when more is asked of it than it can do.

    python -m benchmarks.overload [--seconds 20] [--rounds 3] [--json benchmarks/results/overload.json]

The device is a fake one of known speed, all else is real: processes, HTTP, and for `nats` a broker. A closed loop finds
the capacity. Then requests come at random (Poisson) at 0.5 to 3 times of it, sent by a process of its own whatever
becomes of those before, with a deadline. Goodput is what is answered within the deadline, counted from the moment at
which a request was meant to be sent, over the time until the last reply. Figures are medians over rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.open_loop import DEVICE, TOKENS_A_TEXT, Caller, answered_ms, capacity, num_in_time, send, serving
from shoal.bench.plan import Arrivals, Measured

FACTORS = (0.5, 1.0, 1.5, 2.0, 3.0)
DEADLINE_S = 2.0
NUM_TEXTS = 16
WIRINGS = ("memory", "nats")


def one_load(caller: Caller, rate: float, duration_s: float, seed: int) -> dict[str, float]:
    """What became of one stretch of requests."""
    arrivals = Arrivals("poisson", rate=rate)
    [measured] = send(caller.load(arrivals, duration_s, DEADLINE_S + 1.0, seed))
    num_sent = measured.num_ok + measured.num_failed
    return {
        "offered_per_s": num_sent / duration_s,
        "goodput_per_s": num_in_time(measured, DEADLINE_S) / measured.seconds,
        "p50_ms": answered_ms(measured, 50),
        "p99_ms": answered_ms(measured, 99),
        "refused_share": measured.errors.get("HTTP 429", 0) / num_sent,
        "late_share": _late(measured) / num_sent,
        "other_failures": measured.num_failed - measured.errors.get("HTTP 429", 0) - _late(measured),
        "generator_p99_lag_ms": measured.lag.percentile_s(99) * 1e3,
    }


def _late(measured: Measured) -> int:
    return measured.errors.get("HTTP 504", 0)


def curve(wiring: str, duration_s: float, rounds: int) -> dict[str, Any]:
    """Capacity, and the medians at each load."""
    with serving(wiring, "--timeout-s", str(DEADLINE_S)) as url:
        caller = Caller(url, NUM_TEXTS)
        per_s = statistics.median(capacity(caller, duration_s / 4) for _ in range(3))
        rows: dict[float, list[dict[str, float]]] = {factor: [] for factor in FACTORS}
        for number in range(rounds):
            for factor in FACTORS:
                rows[factor].append(one_load(caller, factor * per_s, duration_s, seed=100 * number))
    points = {
        str(factor): {name: round(statistics.median(row[name] for row in found), 4) for name in found[0]}
        for factor, found in rows.items()
    }
    at_capacity = points["1.0"]["goodput_per_s"]
    return {
        "capacity_per_s": round(per_s, 1),
        "points": points,
        "goodput_at_twice_of_at_capacity": round(points["2.0"]["goodput_per_s"] / at_capacity, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    load = {"device": DEVICE, "texts_a_request": NUM_TEXTS, "tokens_a_text": TOKENS_A_TEXT, "deadline_s": DEADLINE_S}
    result: dict[str, Any] = {"machine": machine.describe(), "load": load}
    for wiring in WIRINGS:
        result[wiring] = curve(wiring, options.seconds, options.rounds)
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
