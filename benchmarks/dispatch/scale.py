"""The policies at sizes that no two cores can run: by simulation, up to 1,000 workers and 1,000 models.

    python -m benchmarks.dispatch.scale [--quick] [--json benchmarks/results/dispatch-scale.json]

For each size and L the highest Poisson rate within L of each policy, as a share of what all workers would do if every
batch were full. Models are popular by Zipf's law.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import machine
from shoal.bench.simulate import POLICIES, Fleet, goodput, zipf
from shoal.worker.cost import CostModel

SIZES = ((8, 1), (8, 8), (8, 32), (64, 64), (256, 256), (1000, 1000))
COST = CostModel(0.1, 0.0005)
REQUEST_TOKENS = 24
REQUESTS_PER_RUN = 60_000
LEAST_OBJECTIVES = 10
"""A run takes so many times L at the least: what is a tenth too much shows by then."""


def share(fleet: Fleet, policy: str, seconds: float) -> float:
    """Goodput as a part of what full batches would do."""
    return round(goodput(fleet, policy, seconds)[0] / fleet.capacity, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes and short runs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sizes = SIZES[:3] if options.quick else SIZES
    print("about 20 seconds" if options.quick else "about 8 minutes", file=sys.stderr, flush=True)
    result: dict[str, Any] = {"machine": machine.describe(), "rows": []}
    with ProcessPoolExecutor() as processes:
        for num_workers, num_models in sizes:
            for objective in (20, 5):
                fleet = Fleet(num_workers, zipf(num_models), COST, objective * COST.a_s, REQUEST_TOKENS)
                least_s = LEAST_OBJECTIVES * fleet.objective_s
                seconds = max(least_s, min(60.0, REQUESTS_PER_RUN / fleet.capacity)) / (4 if options.quick else 1)
                found = processes.map(share, *zip(*((fleet, policy, seconds) for policy in POLICIES), strict=True))
                shares = dict(zip(POLICIES, found, strict=True))
                row = {"workers": num_workers, "models": num_models, "objective_over_a": objective, "shares": shares}
                result["rows"].append(row)
                print(json.dumps(row), flush=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
