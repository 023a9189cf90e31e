"""Names that all tests of surfaces use; the server itself is `tiny` of the topmost conftest.py."""

from __future__ import annotations

from tiny_server import CLASSIFIER, COLBERT, EMBEDDER, QUERY, RANKER, SPARSE, TEXTS, Tiny

__all__ = ["CLASSIFIER", "COLBERT", "EMBEDDER", "QUERY", "RANKER", "SPARSE", "TEXTS", "Tiny"]
