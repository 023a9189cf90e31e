"""Shoal over HTTP beside sentence-transformers in this process, interleaved on the same texts.

    python -m benchmarks.compare [--rounds 5] [--json benchmarks/results/compare.json]

Three mixes: about 16 tokens a text, about 128, and 5 to 300 words, each given as one list to both sides.
sentence-transformers runs with its defaults (torch, float32, sorted by length, batches of 32); Shoal runs as users run
it (`shoal serve`), its client, which cuts the list into requests, counted in. A round times one after the other, in
alternating order; figures are medians over rounds. The share is Shoal's floating-point rate over the machine's own,
measured between the rounds with the fastest number format that the CPU computes natively.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from benchmarks import machine, servers

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
CORPUS = machine.ROOT.parent / "shared" / "data" / "cranfield" / "corpus.jsonl.gz"


def words() -> list[str]:
    """Running text: the Cranfield abstracts where they lie beside the repository, else this repository's own prose."""
    if CORPUS.exists():
        with gzip.open(CORPUS, "rt") as lines:
            return " ".join(json.loads(line)["text"] for line in lines).split()
    return " ".join(path.read_text() for path in sorted(machine.ROOT.glob("*.md"))).split()


def mixes(num_texts: int) -> dict[str, list[str]]:
    """Texts of each mix, the same on every machine; 0.72 words make a token of this corpus."""
    chooser, pool = random.Random(7), words()  # noqa: S311

    def text(num_words: int) -> str:
        start = chooser.randrange(len(pool) - num_words)
        return " ".join(pool[start : start + num_words])

    return {
        "16 tokens": [text(10) for _ in range(num_texts)],
        "128 tokens": [text(91) for _ in range(num_texts // 4)],
        "5-300 words": [text(chooser.randint(5, 300)) for _ in range(num_texts // 4)],
    }


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=1024)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--precision", default="auto", help="Shoal's precision: auto or float32")
    options = parser.parse_args()

    from sentence_transformers import SentenceTransformer

    from shoal.catalog import resolve

    spec = resolve(MODEL)
    reference = SentenceTransformer(spec.directory, device="cpu")
    port = servers.free_port()
    url = f"http://127.0.0.1:{port}"
    result: dict[str, Any] = {"machine": machine.describe(), "model": MODEL, "rounds": options.rounds, "mixes": {}}
    with servers.shoal("serve", MODEL, "--port", str(port), "--precision", options.precision) as process:
        servers.wait_until_ready(url, process)
        with shoal.Client(url, timeout_s=600) as client:
            for name, texts in mixes(options.texts).items():

                def ours(texts: list[str] = texts) -> Any:
                    return client.embed(texts, model=MODEL)

                def theirs(texts: list[str] = texts) -> Any:
                    return reference.encode(texts)

                reply = ours()
                cosine = float(np.min(np.sum(reply.vectors * theirs(), axis=1)))
                num_tokens = sum(reply.num_tokens)
                times: dict[str, list[float]] = {"shoal": [], "sentence-transformers": []}
                rates: list[dict[str, float]] = []
                for round_number in range(options.rounds):
                    pair = [("shoal", ours), ("sentence-transformers", theirs)]
                    for side, work in pair if round_number % 2 else reversed(pair):
                        times[side].append(seconds(work))
                    rates.append(machine.matrix_rate_gflops())
                result["mixes"][name] = report(name, texts, num_tokens, cosine, times, rates, spec.config)
    print(json.dumps(result["machine"], indent=2))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def report(
    name: str,
    texts: list[str],
    num_tokens: int,
    cosine: float,
    times: dict[str, list[float]],
    rates: list[dict[str, float]],
    config: dict[str, Any],
) -> dict[str, Any]:
    """One mix: medians of both sides, their ratio, and Shoal's share of the machine's matrix rate."""
    median = {side: statistics.median(values) for side, values in times.items()}
    rate = {dtype: statistics.median(each[dtype] for each in rates) for dtype in rates[0]}
    fastest = max(rate, key=lambda dtype: rate[dtype])
    flops = num_tokens * machine.encoder_flops_per_token(config, num_tokens / len(texts))
    row: dict[str, Any] = {
        "texts": len(texts),
        "tokens": num_tokens,
        "worst_cosine": round(cosine, 7),
        "texts_per_s": {side: round(len(texts) / value, 1) for side, value in median.items()},
        "tokens_per_s": {side: round(num_tokens / value) for side, value in median.items()},
        "ratio": round(median["sentence-transformers"] / median["shoal"], 2),
        "ratio_range": [
            round(min(b / a for a, b in zip(times["shoal"], times["sentence-transformers"], strict=True)), 2),
            round(max(b / a for a, b in zip(times["shoal"], times["sentence-transformers"], strict=True)), 2),
        ],
        "matrix_rate_gflops": {dtype: round(value, 1) for dtype, value in rate.items()},
        "share_of_matrix_rate": round(flops / median["shoal"] / (rate[fastest] * 1e9), 3),
        "share_is_of": fastest,
    }
    print(
        f"{name:12} shoal {row['texts_per_s']['shoal']:8.1f} texts/s ({row['tokens_per_s']['shoal']} tokens/s)   "
        f"sentence-transformers {row['texts_per_s']['sentence-transformers']:8.1f} texts/s   ratio {row['ratio']}   "
        f"{row['share_of_matrix_rate']:.0%} of the {fastest} matrix rate   worst cosine {cosine:.6f}",
        flush=True,
    )
    return row


if __name__ == "__main__":
    main()
