"""Every head of the torch runtime on a device: in float32 beside the CPU, where the tests hold it against the reference
libraries; and on CUDA in bfloat16, replayed as CUDA graphs, beside the same without them.

One model has all heads: vectors, labels, words of the vocabulary, labels and vectors of tokens; some tokens of a text
are looked at by none, as a query's expansion is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from safetensors.torch import save_file

from benchmarks import gpu_models
from shoal.catalog.spec import (
    Classifier,
    Dense,
    Expansion,
    HeadLayer,
    ModelSpec,
    MultiVector,
    Normalize,
    Side,
    Sparse,
    Tagger,
)
from shoal.runtimes.base import Arrays, Features, RuntimeOptions
from shoal.runtimes.torch.runtime import TorchRuntime

__all__ = ["heads_parity"]

LENGTHS = (1, 5, 5, 70, 33, 200, 2, 33, 16)
GRAPH_TOKENS = 512
MOST_DIFFERENCE = 1e-3
"""Of a number, where the largest is above 1 in parts of it: float32 sums in another order."""


def heads_parity(scratch: Path, config: Any, device: torch.device) -> list[dict[str, Any]]:
    """A row for each head and way of running it."""
    spec = with_heads(gpu_models.save_model(scratch / "heads", config, is_scrambled=True), config.hidden_size)
    hidden = _batch(config.vocab_size)
    plain = msgspec.structs.replace(hidden, num_keys=None)  # what a graph may hold
    rows = []
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("float32", {"device": "cpu"}, {"device": str(device)}),
    ]
    if device.type == "cuda":
        cases.append(("bfloat16", {"device": str(device)}, {"device": str(device), "graph_tokens": GRAPH_TOKENS}))
    for precision, judge, judged in cases:
        for batch in (hidden, plain):
            expected, served = (_run(spec, precision, extra, batch) for extra in (judge, judged))
            for name, array in expected.items():
                if array.dtype == np.float32:
                    rows.append(_row(name, precision, judged, array, served[name]))
    print(f"\nworst difference of {len(rows)} outputs of heads: {max(row['difference'] for row in rows):.1e}")
    return rows


def with_heads(spec: ModelSpec, hidden: int) -> ModelSpec:
    """The model with every head there is, of random weights beside its own."""
    torch.manual_seed(1)
    shapes = {"label": (2, hidden), "tag": (3, hidden), "words": (hidden, hidden), "vector": (16, hidden)}
    tensors = {f"{name}.weight": torch.randn(shape) / hidden**0.5 for name, shape in shapes.items()}
    tensors |= {f"{name}.bias": torch.randn(shape[0]) for name, shape in shapes.items() if name != "vector"}
    tensors |= {"norm.weight": torch.ones(hidden), "norm.bias": torch.zeros(hidden)}
    tensors["word.bias"] = torch.randn(spec.vocabulary_size)
    file = str(Path(spec.directory).parent / "heads-of-random-weights.safetensors")
    save_file(tensors, file)
    vector = Dense(file, hidden, 16, "identity", has_bias=False, name="vector", is_alone=False)
    words = HeadLayer("words", "gelu", "norm")
    return msgspec.structs.replace(
        spec,
        weights=(*spec.weights, file),
        classifier=Classifier((HeadLayer("label"),), ("no", "yes")),
        tagger=Tagger((HeadLayer("tag"),), ("O", "B-PER", "I-PER")),
        sparse=Sparse((words,), "embeddings.word_embeddings.weight", "word.bias"),
        multivector=MultiVector((vector, Normalize()), 16, Side(64, Expansion(32, 4)), Side(512)),
    )


def _batch(vocabulary_size: int) -> Features:
    batch = gpu_models.features(np.array(LENGTHS, np.int32), vocabulary_size)
    kept = np.random.default_rng(2).random(batch.num_tokens) < 0.7
    num_keys = np.maximum(1, batch.lengths * 2 // 3).astype(np.int32)
    return msgspec.structs.replace(batch, kept=kept, num_keys=num_keys)


def _run(spec: ModelSpec, precision: str, extra: dict[str, Any], batch: Features) -> Arrays:
    session = TorchRuntime().load(spec, RuntimeOptions(precision=precision, extra=extra))
    arrays = session.run(batch)
    session.close()
    if "sparse.values" in arrays:  # rows written out: a weight near zero may be there for one and not for the other
        rows = np.zeros((batch.num_items, spec.vocabulary_size), np.float32)
        rows[np.repeat(np.arange(batch.num_items), arrays["sparse.lengths"]), arrays["sparse.indices"]] = arrays.pop(
            "sparse.values"
        )
        arrays["sparse"] = rows
    return arrays


def _row(name: str, precision: str, extra: dict[str, Any], expected: Any, served: Any) -> dict[str, Any]:
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    difference = float(np.abs(served - expected).max(initial=0)) / scale
    return {
        "head": name,
        "precision": precision,
        "graph_tokens": extra.get("graph_tokens", 0),
        "difference": difference,
        "is_right": difference <= MOST_DIFFERENCE,
    }
