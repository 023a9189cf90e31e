"""Rates predicted from a fit of a few seconds, beside those that real load then shows, over ten configurations.

    python -m benchmarks.prediction [--seconds 1.5] [--json benchmarks/results/tuning/prediction.json]

The demo model with texts of 10 to 14 words. Each configuration is fitted as `shoal tune` does it: costs are measured
and its highest Poisson rate with p99 within 50 ms is worked out by simulation. Right after that it is served under
open-loop load until the rate is found that it holds. The configurations differ as much as the space allows, not as
little as those that a search would keep. A run that is stopped goes on where it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks import interleaved, machine
from shoal.bench.texts import MIXES, runs_of_words
from shoal.catalog import resolve
from shoal.settings import ModelSettings, WorkerSettings, state_directory
from shoal.tuner.ledger import Entry, Ledger
from shoal.tuner.objectives import HighestRate
from shoal.tuner.space import Configuration, name_of
from shoal.tuner.trials import Trials

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
LIMIT_MS = 50.0
WITHIN = 0.15
EFFORT = 1.5

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
    parser.add_argument("--seconds", type=float, default=1.5, help="of each load")
    parser.add_argument("--directory", type=Path, default=state_directory() / "benchmarks" / "prediction")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    objective = HighestRate(LIMIT_MS, options.seconds)
    subject = {"model": resolve(MODEL).id, "seconds": options.seconds}
    with Ledger(options.directory / "ledger.jsonl", subject) as ledger:
        for configuration in CONFIGURATIONS:
            if ledger.find("race", configuration) is None:
                _try(ledger, configuration, objective, options.directory)
        rows = [_row(ledger, configuration) for configuration in CONFIGURATIONS]
    num_within = sum(abs(row["error"]) <= WITHIN for row in rows)
    print(f"{num_within} of {len(rows)} within {WITHIN:.0%}")
    result = {"machine": machine.describe(), "model": MODEL, "objective": objective.name, "unit": objective.unit}
    interleaved.save(options.json, result | {"rows": rows, "within": WITHIN, "num_within": num_within})


def _try(ledger: Ledger, configuration: Configuration, objective: HighestRate, directory: Path) -> None:
    """Predict and verify a configuration within the same minute, so that the machine is the same for both."""
    texts = runs_of_words(MIXES["short"], 1024, seed=7)
    worker = WorkerSettings(runtime="openvino", profile="none")
    with Trials(MODEL, worker, ModelSettings(), objective, texts, directory) as trials:
        fit = trials.fit(configuration)
        [raced] = trials.race([configuration], 1, EFFORT)
    ledger.write(Entry("fit", configuration, "measured", figures={"predicted": fit.predicted, **fit.figures}))
    name = name_of(configuration)
    ledger.write(Entry("race", configuration, "measured", figures={name: raced.figure}, points={name: raced.points}))


def _row(ledger: Ledger, configuration: Configuration) -> dict[str, Any]:
    name = name_of(configuration)
    fit, race = (ledger.find(stage, configuration) for stage in ("fit", "race"))
    assert fit is not None  # noqa: S101  # it was written just now
    assert race is not None  # noqa: S101
    predicted, verified = fit.figures["predicted"], race.figures[name]
    row = {
        "configuration": name,
        "a_ms": fit.figures["http_a_ms"],
        "c_us": fit.figures["http_c_us"],
        "predicted": round(predicted, 1),
        "verified": round(verified, 1),
        "error": round(predicted / verified - 1, 3) if verified else 1.0,
        "loads": race.points[name],
    }
    print(f"{name:32} predicted {predicted:7.1f}  verified {verified:7.1f}  {row['error']:+.0%}", flush=True)
    return row


if __name__ == "__main__":
    main()
