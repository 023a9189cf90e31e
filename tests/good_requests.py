"""A request that works for each route that takes one, the field that holds its texts, and the shape of its errors."""

from __future__ import annotations

from typing import Any

from shoal.gateway.surfaces.cohere import CohereError
from shoal.gateway.surfaces.jina import JinaError
from shoal.gateway.surfaces.native import NativeError
from shoal.gateway.surfaces.openai import OpenAIError
from shoal.gateway.surfaces.tei import TeiError
from tiny_server import CLASSIFIER, COLBERT, EMBEDDER, QUERY, RANKER, SPARSE, TAGGER, TEXTS

__all__ = ["GOOD", "items_field", "shape_of"]

EMBED: dict[str, Any] = {"model": EMBEDDER, "input": TEXTS}
RANK: dict[str, Any] = {"model": RANKER, "query": QUERY, "documents": TEXTS}
SENTENCES: dict[str, Any] = {"inputs": {"source_sentence": QUERY, "sentences": TEXTS}, "parameters": {"truncate": True}}
COHERE: dict[str, Any] = {
    "model": EMBEDDER,
    "texts": TEXTS,
    "input_type": "search_query",
    "embedding_types": ["float", "ubinary"],
    "truncate": "START",
}
GOOD: dict[str, dict[str, Any]] = {
    "/v1/embeddings": EMBED | {"encoding_format": "base64", "dimensions": 32, "truncate": True},
    "/v1/embed": EMBED | {"dtype": "int8", "outputs": ["dense"], "overflow": "chunk", "prompt_name": "query"},
    "/v1/rerank": RANK | {"top_n": 2, "return_documents": True},
    "/v1/classify": {"model": CLASSIFIER, "input": TEXTS, "top_k": 1, "raw_scores": True},
    "/v1/similarity": EMBED | {"source": QUERY, "truncation_side": "left"},
    "/v1/tokenize": EMBED | {"add_special_tokens": False, "input_type": "query"},
    "/v1/extract": {"model": TAGGER, "input": TEXTS, "labels": ["PER"], "overflow": "chunk", "threshold": 0.1},
    "/cohere/v2/embed": COHERE,
    "/cohere/v1/embed": COHERE,
    "/cohere/v2/rerank": RANK | {"top_n": 1},
    "/cohere/v1/rerank": RANK | {"return_documents": True, "rank_fields": ["text"]},
    "/jina/v1/embeddings": EMBED | {"task": "retrieval.query", "embedding_type": "binary"},
    "/jina/v1/rerank": RANK | {"top_n": 1, "return_documents": False},
    "/voyage/v1/embeddings": EMBED | {"output_dtype": "ubinary", "input_type": "document"},
    "/voyage/v1/rerank": RANK | {"top_k": 1, "truncation": True},
    f"/tei/{EMBEDDER}": {"inputs": TEXTS},
    f"/tei/{EMBEDDER}/embed": {"inputs": TEXTS, "normalize": False, "truncation_direction": "Left"},
    f"/tei/{SPARSE}/embed_sparse": {"inputs": TEXTS, "truncate": True},
    f"/tei/{COLBERT}/embed_all": {"inputs": TEXTS, "truncation_direction": "Right"},
    f"/tei/{RANKER}/rerank": {"query": QUERY, "texts": TEXTS, "raw_scores": True, "return_text": True},
    f"/tei/{CLASSIFIER}/predict": {"inputs": [[text] for text in TEXTS]},
    f"/tei/{EMBEDDER}/similarity": SENTENCES,
    f"/tei/{EMBEDDER}/tokenize": {"inputs": TEXTS, "add_special_tokens": True},
    f"/tei/{EMBEDDER}/decode": {"ids": [[5, 6], [7]], "skip_special_tokens": False},
}
SHAPES: dict[str, type] = {"/cohere": CohereError, "/jina": JinaError, "/voyage": JinaError, "/tei": TeiError}


def shape_of(route: str) -> type:
    """The struct of an error at a route."""
    found = [shape for base, shape in SHAPES.items() if route.startswith(base)]
    return found[0] if found else OpenAIError if route == "/v1/embeddings" else NativeError


def items_field(route: str) -> str:
    """The field of a request that holds its texts."""
    return next(name for name in ("input", "documents", "texts", "inputs", "ids") if name in GOOD[route])
