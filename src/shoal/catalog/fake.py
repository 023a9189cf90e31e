"""The spec of a model that needs no files: the fake family, which the fake runtime and the fake adapter serve."""

from __future__ import annotations

from shoal.catalog.spec import Classifier, ModelSpec, Normalize, Pooling, Sparse, Tagger, Tokenization

__all__ = ["fake_spec"]


def fake_spec(id: str, dimensions: int = 8, max_length: int = 512) -> ModelSpec:
    """A model of family `fake`: what it says depends on token ids only, see `runtimes.fake`. It can do everything."""
    return ModelSpec(
        id=id,
        directory="",
        family="fake",
        config={},
        weights=(),
        tokenization=Tokenization(file="", max_length=max_length),
        modules=(Pooling(("mean",)), Normalize()),
        dimensions=dimensions,
        sparse=Sparse((), "", ""),
        tagger=Tagger((), labels=("O", "ODD")),
        classifier=Classifier((), labels=("relevant",), function="sigmoid", is_ranker=True),
        similarity="cosine",
        source="fake",
        vocabulary_size=2**31 - 1,
    )
