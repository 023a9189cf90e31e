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
import random
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from benchmarks import interleaved, machine, servers

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def mixes(num_texts: int) -> dict[str, list[str]]:
    """Texts of each mix, the same on every machine; 0.72 words make a token of this corpus."""
    chooser, pool = random.Random(7), interleaved.words()  # noqa: S311

    def text(num_words: int) -> str:
        start = chooser.randrange(len(pool) - num_words)
        return " ".join(pool[start : start + num_words])

    return {
        "16 tokens": [text(10) for _ in range(num_texts)],
        "128 tokens": [text(91) for _ in range(num_texts // 4)],
        "5-300 words": [text(chooser.randint(5, 300)) for _ in range(num_texts // 4)],
    }


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
                rounds = interleaved.measure(options.rounds, ours, theirs)
                flops = num_tokens * machine.encoder_flops_per_token(spec.config, num_tokens / len(texts))
                row = rounds.figures(len(texts), num_tokens, flops) | {"worst_cosine": round(cosine, 7)}
                interleaved.show(name, row, f"worst cosine {cosine:.6f}")
                result["mixes"][name] = row
    interleaved.save(options.json, result)


if __name__ == "__main__":
    main()
