"""What the API's description says of the surfaces that other APIs' clients speak: a row a route."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.gateway.surfaces.cohere import (
    CohereEmbedReply,
    CohereEmbedRequest,
    CohereError,
    CohereRerankReply,
    CohereRerankRequest,
)
from shoal.gateway.surfaces.jina import (
    JinaEmbedRequest,
    JinaError,
    JinaRanking,
    JinaRerankRequest,
    JinaVectors,
)
from shoal.gateway.surfaces.tei import TeiEmbedRequest, TeiError, TeiOutputRequest, TeiWeight
from shoal.gateway.surfaces.tei_scores import (
    TeiPrediction,
    TeiPredictRequest,
    TeiRank,
    TeiRerankRequest,
    TeiSimilarityRequest,
)
from shoal.gateway.surfaces.tei_tokens import TeiDecodeRequest, TeiToken, TeiTokenizeRequest
from shoal.gateway.surfaces.voyage import (
    VoyageEmbedRequest,
    VoyageError,
    VoyageRanking,
    VoyageRerankRequest,
    VoyageVectors,
)

__all__ = ["ROWS", "Row"]

_EMBEDDER, _RANKER = "sentence-transformers/all-MiniLM-L6-v2", "cross-encoder/ms-marco-MiniLM-L6-v2"
_QUERY, _TEXTS = "What is the capital of France?", ["Paris is the capital of France.", "Berlin is in Germany."]


_OF_TEI = {422: "A field is wrong; the message names it.", 424: "A fault of the server or of the model."}


class Row(msgspec.Struct, frozen=True):
    """A route: its structs, what is required of a request, and one that works; statuses that only its API has."""

    path: str
    summary: str
    request: type
    reply: Any
    error: type
    required: tuple[str, ...]
    example: dict[str, Any]
    statuses: dict[int, str] = {}


def _cohere_embed(path: str) -> Row:
    return Row(
        path,
        "Embed texts, in Cohere's shape",
        CohereEmbedRequest,
        CohereEmbedReply,
        CohereError,
        ("model", "texts"),
        {"model": _EMBEDDER, "texts": _TEXTS, "input_type": "search_document", "embedding_types": ["float"]},
    )


def _cohere_rerank(path: str) -> Row:
    return Row(
        path,
        "Rank documents for a query, in Cohere's shape",
        CohereRerankRequest,
        CohereRerankReply,
        CohereError,
        ("model", "query", "documents"),
        {"model": _RANKER, "query": _QUERY, "documents": _TEXTS, "top_n": 1},
    )


def _tei(path: str, summary: str, request: type, reply: Any, required: tuple[str, ...], **example: Any) -> Row:
    return Row(path, f"{summary}, in TEI's shape", request, reply, TeiError, required, example, _OF_TEI)


def _all_of_tei(base: str) -> tuple[Row, ...]:
    inputs = ("inputs",)
    return (
        _tei(f"{base}/embed", "Embed texts", TeiEmbedRequest, list[list[float]], inputs, inputs=_TEXTS),
        _tei(
            f"{base}/embed_sparse",
            "Embed texts sparsely",
            TeiOutputRequest,
            list[list[TeiWeight]],
            inputs,
            inputs=_TEXTS,
        ),
        _tei(
            f"{base}/embed_all",
            "Embed texts, a vector a token",
            TeiOutputRequest,
            list[list[list[float]]],
            inputs,
            inputs=_TEXTS,
        ),
        _tei(
            f"{base}/rerank",
            "Rank texts for a query",
            TeiRerankRequest,
            list[TeiRank],
            ("query", "texts"),
            query=_QUERY,
            texts=_TEXTS,
        ),
        _tei(
            f"{base}/predict",
            "Label texts",
            TeiPredictRequest,
            list[TeiPrediction | list[TeiPrediction]],
            inputs,
            inputs="I love this",
        ),
        _tei(
            f"{base}/similarity",
            "Compare texts with one",
            TeiSimilarityRequest,
            list[float],
            inputs,
            inputs={"source_sentence": _QUERY, "sentences": _TEXTS},
        ),
        _tei(f"{base}/tokenize", "Tokenise texts", TeiTokenizeRequest, list[list[TeiToken]], inputs, inputs=_TEXTS),
        _tei(f"{base}/decode", "Make texts of token ids", TeiDecodeRequest, list[str], ("ids",), ids=[101, 7592, 102]),
    )


def _v1(base: str, name: str, embed: tuple[type, type], rerank: tuple[type, type], error: type) -> tuple[Row, Row]:
    texts = {"model": _EMBEDDER, "input": _TEXTS}
    ranking = {"model": _RANKER, "query": _QUERY, "documents": _TEXTS}
    return (
        Row(f"/{base}/v1/embeddings", f"Embed texts, in {name}'s shape", *embed, error, tuple(texts), texts),
        Row(f"/{base}/v1/rerank", f"Rank documents, in {name}'s shape", *rerank, error, tuple(ranking), ranking),
    )


ROWS: tuple[Row, ...] = (
    _cohere_embed("/v2/embed"),
    _cohere_rerank("/v2/rerank"),
    _cohere_embed("/cohere/v1/embed"),
    _cohere_rerank("/cohere/v1/rerank"),
    _cohere_embed("/cohere/v2/embed"),
    _cohere_rerank("/cohere/v2/rerank"),
    _tei("/tei", "Embed texts", TeiEmbedRequest, list[list[float]], ("inputs",), inputs=_TEXTS),
    *_all_of_tei("/tei"),
    *_all_of_tei(""),
    *_v1("jina", "Jina", (JinaEmbedRequest, JinaVectors), (JinaRerankRequest, JinaRanking), JinaError),
    *_v1("voyage", "Voyage", (VoyageEmbedRequest, VoyageVectors), (VoyageRerankRequest, VoyageRanking), VoyageError),
)
