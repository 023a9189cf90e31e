"""Shoal and its reference, timed one after the other in alternating order, and what the figures are held against.

A round times both sides and the machine's matrix rate; figures are medians over rounds. The share is Shoal's
floating-point rate over the matrix rate in the fastest number format that the CPU computes natively.
"""

from __future__ import annotations

import gzip
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import machine

__all__ = ["OURS", "THEIRS", "Rounds", "measure", "save", "show", "words"]

OURS, THEIRS = "shoal", "sentence-transformers"
CORPUS = machine.ROOT.parent / "shared" / "data" / "cranfield" / "corpus.jsonl.gz"


def words() -> list[str]:
    """Running text: the Cranfield abstracts where they lie beside the repository, else this repository's own prose."""
    if CORPUS.exists():
        with gzip.open(CORPUS, "rt") as lines:
            return " ".join(json.loads(line)["text"] for line in lines).split()
    return " ".join(path.read_text() for path in sorted(machine.ROOT.glob("*.md"))).split()


class Rounds:
    """Seconds of each side, and the matrix rate in each round."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {OURS: [], THEIRS: []}
        self.rates: list[dict[str, float]] = []

    def figures(self, num_items: int, num_tokens: int, flops: float) -> dict[str, Any]:
        """One row of a result: medians of both sides, their ratio, and Shoal's share of the matrix rate.

        Args:
            flops: floating-point operations that the model has for these items; what a side knows how to leave out
                counts as done.
        """
        median = {side: statistics.median(values) for side, values in self.times.items()}
        rate = {dtype: statistics.median(each[dtype] for each in self.rates) for dtype in self.rates[0]}
        fastest = max(rate, key=lambda dtype: rate[dtype])
        ratios = [theirs / ours for ours, theirs in zip(self.times[OURS], self.times[THEIRS], strict=True)]
        return {
            "texts": num_items,
            "tokens": num_tokens,
            "texts_per_s": {side: round(num_items / value, 1) for side, value in median.items()},
            "tokens_per_s": {side: round(num_tokens / value) for side, value in median.items()},
            "ratio": round(median[THEIRS] / median[OURS], 2),
            "ratio_range": [round(min(ratios), 2), round(max(ratios), 2)],
            "matrix_rate_gflops": {dtype: round(value, 1) for dtype, value in rate.items()},
            "share_of_matrix_rate": round(flops / median[OURS] / (rate[fastest] * 1e9), 3),
            "reference_share": round(flops / median[THEIRS] / (rate[fastest] * 1e9), 3),
            "share_is_of": fastest,
        }


def measure(num_rounds: int, ours: Callable[[], Any], theirs: Callable[[], Any]) -> Rounds:
    """Both sides in turns; run each once before, so that nothing is built or fetched in a round."""
    rounds = Rounds()
    for number in range(num_rounds):
        pair = [(OURS, ours), (THEIRS, theirs)]
        for side, work in pair if number % 2 else reversed(pair):
            start = time.perf_counter()
            work()
            rounds.times[side].append(time.perf_counter() - start)
        rounds.rates.append(machine.matrix_rate_gflops())
    return rounds


def show(name: str, row: dict[str, Any], judged: str) -> None:
    """A line on the terminal; `judged` says how near the two sides' results are."""
    shares = {OURS: row["share_of_matrix_rate"], THEIRS: row["reference_share"]}
    sides = "   ".join(
        f"{side} {row['texts_per_s'][side]:.1f} texts/s ({share:.0%} of the {row['share_is_of']} matrix rate)"
        for side, share in shares.items()
    )
    print(f"{name:18}  {sides}   ratio {row['ratio']}   {judged}", flush=True)


def save(path: Path | None, result: dict[str, Any]) -> None:
    """The machine on the terminal; everything into a file, if one is wanted."""
    print(json.dumps(result["machine"], indent=2))
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n")
