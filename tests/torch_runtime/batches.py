"""Ragged batches of texts or random ids, and how near vectors are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shoal.adapters import open_adapter
from shoal.catalog import resolve
from shoal.runtimes.base import Features, RuntimeOptions, Session
from shoal.types import EmbedOptions

FLOAT32 = RuntimeOptions(precision="float32")


def options(**extra: object) -> RuntimeOptions:
    """float32 with options of the runtime."""
    return RuntimeOptions(precision="float32", extra=extra)


def batches(directory: Path, texts: list[str], prompt: str | None = None) -> list[Features]:
    """The texts as one batch, then each alone, as the adapter of the model in `directory` makes them."""
    adapter = open_adapter(resolve(str(directory)))
    prepared = adapter.prepare(texts, EmbedOptions(prompt=prompt))
    return [adapter.collate(prepared), *(adapter.collate([item]) for item in prepared)]


def together_and_alone(session: Session, made: list[Features]) -> list[npt.NDArray[np.float32]]:
    """Vectors of all texts in one batch, and of each in a batch of its own."""
    together, *alone = (session.run(features)["dense"] for features in made)
    return [together, np.concatenate(alone)]


def random_batch(lengths: Sequence[int], vocabulary: int, seed: int = 0, pool_from: int = 0) -> Features:
    """Texts of random ids, every id of the vocabulary among them, padding too."""
    generator = np.random.default_rng(seed)
    counts = np.array(lengths, np.int32)
    ids = generator.integers(0, vocabulary, int(counts.sum())).astype(np.int32)
    return Features(ids, counts, np.full_like(counts, pool_from))


def assert_equal(vectors: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> None:
    """Equal up to float32 rounding."""
    assert vectors.dtype == np.float32
    assert vectors.shape == expected.shape
    worst = float(cosines(vectors, expected).min())
    assert worst >= 0.999999, f"worst cosine {worst:.8f}"
    np.testing.assert_allclose(vectors, expected, atol=1e-5 * max(1.0, float(np.abs(expected).max())))


def cosines(left: npt.NDArray[np.float32], right: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Row by row, in float64."""
    left64, right64 = left.astype(np.float64), right.astype(np.float64)
    lengths = np.linalg.norm(left64, axis=1) * np.linalg.norm(right64, axis=1)
    return np.asarray(np.sum(left64 * right64, axis=1) / lengths)
