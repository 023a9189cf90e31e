"""Reranking over HTTP beside sentence-transformers' CrossEncoder in this process, interleaved on the same pairs.

    python -m benchmarks.rerank [--rounds 5] [--documents 100] [--json benchmarks/results/rerank.json]

One query against documents of about 100 tokens. The model has the shape of ms-marco-MiniLM-L6 and random weights, saved
by CrossEncoder with the demo model's tokenizer. CrossEncoder runs with its defaults (torch, float32, batches of 32);
Shoal runs as users run it (`shoal serve`), its client counted in.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import shoal
from benchmarks import interleaved, machine, random_models, servers

QUERY = "What is the effect of the boundary layer on the flow over a heated flat plate?"
WORDS = 72
"""Of a document: 0.72 words make a token of this corpus."""
MINILM_L6 = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chooser, pool = random.Random(7), interleaved.words()  # noqa: S311
    starts = [chooser.randrange(len(pool) - WORDS) for _ in range(options.documents)]
    documents = [" ".join(pool[start : start + WORDS]) for start in starts]
    with tempfile.TemporaryDirectory() as scratch:
        result = compare(Path(scratch), documents, options.rounds)
    interleaved.save(options.json, result)


def compare(scratch: Path, documents: list[str], num_rounds: int) -> dict[str, Any]:
    """Serve the model, time both sides."""
    from sentence_transformers import CrossEncoder

    config = transformers.AutoConfig.for_model("bert", vocab_size=30522, num_labels=1, **MINILM_L6)
    directory = random_models.save_cross_encoder(scratch, config)
    judge = CrossEncoder(str(directory), device="cpu")
    pairs = [(QUERY, document) for document in documents]
    num_tokens = sum(len(ids) for ids in judge.tokenizer([QUERY] * len(documents), documents)["input_ids"])
    port = servers.free_port()
    url = f"http://127.0.0.1:{port}"
    with servers.shoal("serve", str(directory), "--port", str(port)) as process:
        servers.wait_until_ready(url, process)
        with shoal.Client(url, timeout_s=600) as client:

            def ours() -> Any:
                return client.rerank(QUERY, documents, model=directory.name)

            def theirs() -> Any:
                return judge.predict(pairs)

            worst = float(np.abs(ours().scores - theirs()).max())
            rounds = interleaved.measure(num_rounds, ours, theirs)
    flops = num_tokens * machine.encoder_flops_per_token(config.to_dict(), num_tokens / len(documents))
    row = rounds.figures(len(documents), num_tokens, flops) | {"worst_difference": float(f"{worst:.1e}")}
    interleaved.show("rerank", row, f"worst difference {worst:.1e}")
    return {
        "machine": machine.describe(),
        "model": "the shape of ms-marco-MiniLM-L6, random weights",
        "rounds": num_rounds,
        "mixes": {f"{len(documents)} documents": row},
    }


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
