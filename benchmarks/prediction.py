"""Rates predicted from a fit of a few seconds, beside those that real load then shows, over ten configurations.

    python -m benchmarks.prediction [--seconds 6] [--json benchmarks/results/prediction.json]

The demo model with texts of 10 to 14 words. Each configuration is fitted as `shoal tune` does it: loaded alone, its
costs measured, its highest Poisson rate with p99 within 50 ms worked out by simulation. Then all are served at once and
take turns under open-loop load until the rate is found that each holds. They differ as much as the space allows, not
as little as those that a search would keep. A run that is stopped goes on where it was.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import interleaved, machine
from shoal.bench.texts import MIXES, runs_of_words
from shoal.catalog import resolve
from shoal.settings import ModelSettings, WorkerSettings, state_directory
from shoal.tuner.ledger import Entry, Ledger
from shoal.tuner.objectives import HighestRate
from shoal.tuner.search import TrialFailed
from shoal.tuner.space import Configuration, name_of
from shoal.tuner.trials import Trials

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
LIMIT_MS = 50.0
WITHIN = 0.15

CONFIGURATIONS: tuple[Configuration, ...] = (
    {},
    {"threads": 1},
    {"streams": 2},
    {"layout": "padded"},
    {"run_tokens": 256},
    {"latency_objective_ms": 50.0},
    {"latency_objective_ms": 25.0},
    {"threads": 1, "layout": "padded"},
    {"precision": "int8_weights"},
    {"runtime": "torch"},
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="of the shortest load")
    parser.add_argument("--races", type=int, default=1, help="on as many seeds; the median counts")
    parser.add_argument("--directory", type=Path, default=state_directory() / "benchmarks" / "prediction")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    objective = HighestRate(LIMIT_MS, options.seconds)
    texts = runs_of_words(MIXES["short"], 1024, seed=7)
    worker = WorkerSettings(runtime="openvino", profile="none")
    subject = {"model": resolve(MODEL).id, "seconds": options.seconds}
    with (
        Ledger(options.directory / "ledger.jsonl", subject) as ledger,
        Trials(MODEL, worker, ModelSettings(), objective, texts, options.directory) as trials,
    ):
        fits = [_fitted(trials, ledger, configuration) for configuration in CONFIGURATIONS]
        races = [_raced(trials, ledger, seed) for seed in range(1, options.races + 1)]
    rows = [_row(fit, races) for fit in fits]
    for row in rows:
        print(f"{row['configuration']:32} predicted {row['predicted']:7.1f}  verified {row['verified']:7.1f}  "
              f"{row['error']:+.0%}", flush=True)  # fmt: skip
    num_within = sum(abs(row["error"]) <= WITHIN for row in rows)
    print(f"{num_within} of {len(rows)} within {WITHIN:.0%}")
    result = {"machine": machine.describe(), "model": MODEL, "objective": objective.name, "unit": objective.unit}
    interleaved.save(options.json, result | {"rows": rows, "within": WITHIN, "num_within": num_within})


def _fitted(trials: Trials, ledger: Ledger, configuration: Configuration) -> Entry:
    if (known := ledger.find("fit", configuration)) is not None:
        return known
    try:
        fit = trials.fit(configuration)
    except TrialFailed as failure:
        raise SystemExit(f"{name_of(configuration)}: {failure.message}") from failure
    entry = Entry("fit", configuration, "measured", figures={"predicted": fit.predicted, **fit.figures})
    ledger.write(entry)
    print(f"{name_of(configuration)}: {fit.predicted:.1f} predicted", flush=True)
    return entry


def _raced(trials: Trials, ledger: Ledger, seed: int) -> Entry:
    if (known := ledger.find("race", {}, seed)) is not None:
        return known
    raced = zip(CONFIGURATIONS, trials.race(CONFIGURATIONS, seed, 1.0), strict=True)
    named = {name_of(configuration): one for configuration, one in raced}
    entry = Entry("race", {}, "measured", seed, {name: one.figure for name, one in named.items()},
                  {name: one.points for name, one in named.items()})  # fmt: skip
    ledger.write(entry)
    return entry


def _row(fit: Entry, races: Sequence[Entry]) -> dict[str, Any]:
    name, predicted = name_of(fit.configuration), fit.figures["predicted"]
    figures = sorted(race.figures[name] for race in races)
    verified = figures[len(figures) // 2]
    return {
        "configuration": name,
        "a_ms": fit.figures["a_ms"],
        "c_us": fit.figures["c_us"],
        "predicted": round(predicted, 1),
        "verified": round(verified, 1),
        "error": round(predicted / verified - 1, 3) if verified else 1.0,
    }


if __name__ == "__main__":
    main()
