"""What a tenant that floods does to one that asks little.

    python -m benchmarks.fairness [--seconds 20] [--rounds 3] [--json benchmarks/results/fairness.json]

A quiet tenant sends requests at random (Poisson), a seventh of what the server can do: alone, then beside a flood of
the same requests at three times the capacity from another tenant's key, then beside the same flood from its own tenant,
which is what a server without fairness between tenants would do. The device is a fake one of known speed, all else is
real. Figures are medians over rounds, latency counts from the moment at which a request was meant to be sent; what was
refused is left out of it and given beside.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.open_loop import DEVICE, TOKENS_A_TEXT, Caller, answered_ms, capacity, send, serving
from shoal.bench.plan import Arrivals, Measured
from shoal.gateway.keys import keyfile

OBJECTIVE_MS = 50
"""A batch takes at most 0.6 of it. Nobody can be let into a batch that runs, so this is what everybody waits for."""

NUM_TEXTS = {"quiet": 16, "flood": 16}
QUIET_SHARE = 1 / 7
FLOOD_FACTOR = 3.0
TIMEOUT_S = 10.0
WIRINGS = ("memory", "nats")
SCENES = ("alone", "with fairness", "without")


def make_keys(path: Path) -> dict[str, str]:
    """A key for each tenant."""
    keys = {}
    for tenant in NUM_TEXTS:
        keys[tenant], key_id = keyfile.new_key()
        keyfile.add(path, keyfile.Key(key_id, keyfile.digest_of(keys[tenant].encode()), tenant))
    return keys


def scenes(url: str, keys: dict[str, str], duration_s: float, rounds: int) -> dict[str, Any]:
    """What the quiet tenant sees in each scene."""
    quiet, flood = (Caller(url, NUM_TEXTS[name], keys[name]) for name in ("quiet", "flood"))
    own_flood = Caller(url, NUM_TEXTS["flood"], keys["quiet"])
    per_s = capacity(flood, duration_s / 4)
    quiet_per_s = QUIET_SHARE * per_s * NUM_TEXTS["flood"] / NUM_TEXTS["quiet"]
    beside = {"alone": [], "with fairness": [flood], "without": [own_flood]}
    seen: dict[str, list[dict[str, float]]] = {scene: [] for scene in SCENES}
    for number in range(rounds):
        for scene, others in beside.items():
            loads = [quiet.load(Arrivals("poisson", rate=quiet_per_s), duration_s, TIMEOUT_S, 1 + 100 * number)]
            for other in others:
                arrivals = Arrivals("poisson", rate=FLOOD_FACTOR * per_s)
                loads.append(other.load(arrivals, duration_s, TIMEOUT_S, 2 + 100 * number))
            seen[scene].append(_figures(send(*loads)[0]))
    medians = {
        scene: {name: round(statistics.median(row[name] for row in rows), 4) for name in rows[0]}
        for scene, rows in seen.items()
    }
    times = {scene: round(medians[scene]["p99_ms"] / medians["alone"]["p99_ms"], 2) for scene in SCENES[1:]}
    return {
        "capacity_per_s": round(per_s, 1),
        "quiet_per_s": round(quiet_per_s, 1),
        "quiet": medians,
        "p99_times_quiet_value": times,
    }


def _figures(measured: Measured) -> dict[str, float]:
    return {
        "p50_ms": answered_ms(measured, 50),
        "p99_ms": answered_ms(measured, 99),
        "refused_share": measured.num_failed / (measured.num_ok + measured.num_failed),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    load = {"device": DEVICE, "texts_a_request": NUM_TEXTS, "tokens_a_text": TOKENS_A_TEXT, "flood": FLOOD_FACTOR}
    result: dict[str, Any] = {"machine": machine.describe(), "load": load | {"latency_objective_ms": OBJECTIVE_MS}}
    with tempfile.TemporaryDirectory() as directory:
        keys_file = Path(directory) / "keys"
        keys = make_keys(keys_file)
        for wiring in WIRINGS:
            limits = ("--latency-objective-ms", str(OBJECTIVE_MS), "--timeout-s", str(TIMEOUT_S))
            with serving(wiring, "--keys-file", str(keys_file), *limits) as url:
                result[wiring] = scenes(url, keys, options.seconds, options.rounds)
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
