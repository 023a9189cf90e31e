"""A server of tiny models, one for each thing that surfaces do, and the native answers to compare with.

conftest.py starts one a session, for the tests of surfaces and for the fuzzing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from e2e.running import serving
from tiny_heads import TinyHead
from tiny_models import TinyModel
from tiny_multivector import TinyMultiVector

EMBEDDER, RANKER, CLASSIFIER = "tiny-embedder", "tiny-ranker", "tiny-classes"
SPARSE, TAGGER, COLBERT = "tiny-sparse", "tiny-tags", "tiny-colbert"
QUERY = "What is the capital of France?"
TEXTS = ["Berlin is the capital of Germany.", "Paris is the capital of France.", "Madrid, in Spain"]


@dataclasses.dataclass(frozen=True)
class Tiny:
    """A running server, and the directory of its models."""

    url: str
    directory: Path

    def ask(self, route: str, **fields: Any) -> dict[str, Any]:
        """The reply of a native route."""
        reply = self.post(route, **fields)
        assert reply.status_code == 200, reply.text
        body: dict[str, Any] = reply.json()
        return body

    def post(self, route: str, **fields: Any) -> httpx.Response:
        return httpx.post(self.url + route, json=fields, timeout=60)

    def embed(self, texts: list[str] | str, **fields: Any) -> npt.NDArray[np.float32]:
        """Float32 vectors of the tiny embedder."""
        body = self.ask("/v1/embed", model=EMBEDDER, input=texts, **fields)
        return np.array(body["embeddings"], np.float32)

    def scores(self, texts: list[str], model: str = RANKER, **fields: Any) -> list[float]:
        """Relevance of each text to QUERY, in the order of the texts."""
        results = self.ask("/v1/rerank", model=model, query=QUERY, documents=texts, **fields)["results"]
        return [row["relevance_score"] for row in sorted(results, key=lambda row: row["index"])]


@contextlib.contextmanager
def serving_tiny(
    root: Path,
    tiny_model: Callable[[TinyModel], Path],
    tiny_head: Callable[[TinyHead], Path],
    tiny_multivector: Callable[[TinyMultiVector], Path],
) -> Iterator[Tiny]:
    """The server, its models copied to `root`."""
    prompts = (("query", "query: "), ("document", "passage: "))
    sources = {
        EMBEDDER: tiny_model(TinyModel("xlm-roberta", prompts=prompts)),
        RANKER: tiny_head(TinyHead("roberta", "cross")),
        CLASSIFIER: tiny_head(TinyHead("distilbert", num_labels=3, labels=("bad", "fair", "good"))),
        SPARSE: tiny_head(TinyHead("bert", "sparse")),
        TAGGER: tiny_head(TinyHead("bert", "tags", num_labels=3, labels=("O", "B-PER", "I-PER"))),
        COLBERT: tiny_multivector(TinyMultiVector()),
    }
    for name, source in sources.items():
        shutil.copytree(source, root / name)
    with serving("--models-directory", str(root)) as (_, url):
        yield Tiny(url, root)
