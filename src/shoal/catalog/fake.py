"""The spec of a model that needs no files: the fake family, which the fake runtime and the fake adapter serve."""

from __future__ import annotations

from shoal.catalog.spec import ModelSpec, Normalize, Pooling, Tokenization

__all__ = ["fake_spec"]


def fake_spec(id: str, dimensions: int = 8, max_length: int = 512) -> ModelSpec:
    """A model of family `fake`: its vectors depend on its token ids only, see `runtimes.fake`."""
    return ModelSpec(
        id=id,
        directory="",
        family="fake",
        config={},
        weights=(),
        tokenization=Tokenization(file="", max_length=max_length),
        modules=(Pooling(("mean",)), Normalize()),
        dimensions=dimensions,
        source="fake",
        vocabulary_size=2**31 - 1,
    )
