"""Clusters of vectors: scipy's dendrogram, cut as scipy cuts it, ties included."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling

from shoal.adapters.merging import merge_likes
from shoal.catalog.spec import TokenMerging


@pytest.mark.parametrize("num_vectors", [0, 1, 2, 3, 4, 9, 40, 120])
@pytest.mark.parametrize("factor", [1.0, 1.3, 2.0, 7.0, 500.0])
@pytest.mark.parametrize("num_protected", [0, 1, 3])
def test_vectors_are_those_of_the_reference_in_its_order(num_vectors: int, factor: float, num_protected: int) -> None:
    vectors = np.random.default_rng(num_vectors).normal(size=(num_vectors, 12)).astype(np.float32)
    vectors[num_vectors // 2 :][: num_vectors // 4] = vectors[: num_vectors // 4]  # tokens that come twice
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for normalizes in (True, False):
        judge = HierarchicalTokenPooling(factor, num_protected_tokens=num_protected, normalize_embeddings=normalizes)
        (expected,) = judge.pool([torch.from_numpy(vectors)])
        merged = merge_likes(vectors, TokenMerging(factor, num_protected, normalizes))
        assert merged.shape == tuple(expected.shape)
        np.testing.assert_allclose(merged, expected.numpy(), atol=1e-5)
