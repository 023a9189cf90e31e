"""Native rerank, similarity and classify take `overflow` as well as `truncate`, in the same sense."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shoal.errors import InvalidRequest
from shoal.gateway.surfaces.native_classify import NativeClassify
from shoal.gateway.surfaces.native_rerank import NativeRerank
from shoal.gateway.surfaces.native_similarity import NativeSimilarity

BODIES: list[tuple[Any, dict[str, Any]]] = [
    (NativeRerank, {"query": "q", "documents": ["d"]}),
    (NativeSimilarity, {"source": "s", "input": ["d"]}),
    (NativeClassify, {"input": ["d"]}),
]


def read(surface: Any, body: dict[str, Any]) -> Any:
    return surface().read(msgspec.json.encode({"model": "m", **body}), "json", "json").options.truncate


@pytest.mark.parametrize(("surface", "body"), BODIES)
def test_overflow_says_what_truncate_says(surface: Any, body: dict[str, Any]) -> None:
    assert read(surface, body) is None
    assert read(surface, {**body, "overflow": "error"}) is False
    assert read(surface, {**body, "overflow": "truncate"}) is True
    for wrong in ({"overflow": "chunk"}, {"overflow": "error", "truncate": True}):
        with pytest.raises(InvalidRequest) as caught:
            read(surface, {**body, **wrong})
        assert caught.value.param == "overflow"
