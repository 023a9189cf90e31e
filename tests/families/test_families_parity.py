"""Each family, from its saved files to vectors, against sentence-transformers: alone, and packed with neighbours.

To add a family: one row in `ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from sentence_transformers import SentenceTransformer

from shoal.adapters import open_adapter
from shoal.catalog import resolve
from shoal.runtimes.base import RuntimeOptions
from shoal.runtimes.openvino.runtime import OpenVINORuntime
from shoal.types import EmbedOptions
from tiny_models import NASTY_TEXTS, TinyModel, encode_reference

ROWS = {
    "electra": TinyModel("electra", pooling="cls", config=(("embedding_size", 24),)),
    "electra-without-projection": TinyModel("electra", config=(("embedding_size", 32),)),
}
TEXTS = [*NASTY_TEXTS, "mountains", "query: where is the sea", "The quick brown fox and the lazy dog. " * 3]


@pytest.mark.parametrize("name", ROWS)
def test_family_equals_the_reference(
    name: str, tiny_model: Callable[..., Path], reference: Callable[[Path], SentenceTransformer]
) -> None:
    directory = tiny_model(ROWS[name])
    spec = resolve(str(directory))
    adapter = open_adapter(spec)
    session = OpenVINORuntime().load(spec, RuntimeOptions(precision="float32"))
    prepared = adapter.prepare(TEXTS, EmbedOptions())
    judge = reference(directory)
    for text, item in zip(TEXTS, prepared, strict=True):
        assert item.token_ids.tolist() == judge.preprocess([text])["input_ids"].flatten().tolist(), text[:60]
    expected = encode_reference(judge, TEXTS)
    together = session.run(adapter.collate(prepared))["dense"]
    alone = np.concatenate([session.run(adapter.collate([item]))["dense"] for item in prepared])
    for vectors in (together, alone):
        assert vectors.shape == expected.shape
        print(f"{name}: worst {1 - cosines(vectors, expected).min():.1e}, {np.abs(vectors - expected).max():.1e}")
        assert cosines(vectors, expected).min() >= 0.999999
        np.testing.assert_allclose(vectors, expected, atol=1e-4 * max(1.0, float(np.abs(expected).max())))
    session.close()


def cosines(left: npt.NDArray[np.float32], right: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Row by row, in float64."""
    left64, right64 = left.astype(np.float64), right.astype(np.float64)
    lengths = np.linalg.norm(left64, axis=1) * np.linalg.norm(right64, axis=1)
    return np.asarray(np.sum(left64 * right64, axis=1) / lengths)
