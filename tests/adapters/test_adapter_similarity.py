"""Similarity functions: as the model's files declare, with sentence-transformers' own numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SimilarityFunction

from shoal.adapters import open_adapter
from shoal.catalog import resolve
from shoal.errors import ModelRefused
from shoal.types import SimilarityOptions

OPTIONS = SimilarityOptions("a source")


@pytest.fixture
def directory(tmp_path: Path, tiny_model: Callable[..., Path]) -> Callable[[object], Path]:
    """`directory(name)`: a model without Normalize that declares that function."""

    def build(name: object) -> Path:
        target = tmp_path / "model"
        shutil.copytree(tiny_model("bert", normalize=False), target)
        file = target / "config_sentence_transformers.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"similarity_fn_name": name}))
        return target

    return build


@pytest.mark.parametrize("name", [None, "cosine", "dot", "euclidean", "manhattan"])
def test_each_function_gives_sentence_transformers_numbers(directory: Callable[[object], Path], name: str) -> None:
    spec = resolve(str(directory(name)))
    assert spec.card.similarity == (name or "cosine")
    adapter = open_adapter(spec)
    adapter.check(OPTIONS)
    runs = adapter.prepare(["one", "two", "three"], OPTIONS)
    assert [run.is_shared for run in runs] == [True, False, False, False]
    raw = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)
    (scores,) = adapter.finish({"dense": raw}, OPTIONS, runs)
    function = SimilarityFunction.to_similarity_fn(name or "cosine")
    expected = function(torch.from_numpy(raw[:1]), torch.from_numpy(raw[1:]))[0].numpy()
    np.testing.assert_allclose(scores.values, expected, rtol=1e-5)


def test_an_unknown_function_is_refused(directory: Callable[[object], Path]) -> None:
    with pytest.raises(ModelRefused, match=r"similarity_fn_name.*'chebyshev'"):
        resolve(str(directory("chebyshev")))
