"""What a model family means: texts to features, raw arrays to vectors. In the sidecar, without inference library."""

from __future__ import annotations

from shoal.adapters.base import Adapter
from shoal.adapters.fake import FakeTokenizer
from shoal.adapters.text import TextAdapter
from shoal.adapters.tokenizing import TextTokenizer
from shoal.catalog.spec import ModelSpec

__all__ = ["open_adapter"]


def open_adapter(spec: ModelSpec, *, truncates: bool = True) -> Adapter:
    """The adapter of a model, its tokenizer loaded.

    Args:
        truncates: what happens to a text that is too long if the request does not say.

    Raises:
        ModelRefused: the tokenizer is not understood.
    """
    kind = FakeTokenizer if spec.family == "fake" else TextTokenizer
    return TextAdapter(spec, kind(spec.tokenization), truncates=truncates)
