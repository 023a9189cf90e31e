"""Every route with spoiled requests: no fault of the server, errors in its shape, and a good request works after."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given

from fuzz.effort import tries
from fuzz.spoiled import json_bodies, msgpack_bodies
from shoal.gateway.routes import Routes
from shoal.gateway.surfaces.cohere import CohereError
from shoal.gateway.surfaces.jina import JinaError
from shoal.gateway.surfaces.native import NativeError
from shoal.gateway.surfaces.openai import OpenAIError
from shoal.gateway.surfaces.tei import TeiError
from tiny_server import CLASSIFIER, EMBEDDER, QUERY, RANKER, SPARSE, TAGGER, TEXTS, Tiny

NUM_EXAMPLES = 12

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
    f"/tei/{RANKER}/rerank": {"query": QUERY, "texts": TEXTS, "raw_scores": True, "return_text": True},
    f"/tei/{CLASSIFIER}/predict": {"inputs": [[text] for text in TEXTS]},
    f"/tei/{EMBEDDER}/similarity": SENTENCES,
    f"/tei/{EMBEDDER}/tokenize": {"inputs": TEXTS, "add_special_tokens": True},
    f"/tei/{EMBEDDER}/decode": {"ids": [[5, 6], [7]], "skip_special_tokens": False},
}
SHAPES: dict[str, type] = {"/cohere": CohereError, "/jina": JinaError, "/voyage": JinaError, "/tei": TeiError}
NATIVE = [route for route in GOOD if route.startswith("/v1/") and route != "/v1/embeddings"]
STATUSES = {200, 400, 404, 413, 415, 422}


def shape_of(route: str) -> type:
    """The struct of an error at a route."""
    found = [shape for base, shape in SHAPES.items() if route.startswith(base)]
    return found[0] if found else OpenAIError if route == "/v1/embeddings" else NativeError


@pytest.fixture(scope="module")
def http(tiny: Tiny) -> Any:
    with httpx.Client(base_url=tiny.url, timeout=30) as client:
        yield client


def test_every_route_is_here() -> None:
    """A new route is fuzzed too, or this fails."""
    routes = {surface.route for surface in Routes().surfaces}
    here = {
        f"/tei/{'/'.join(route.split('/')[3:])}".rstrip("/") if route.startswith("/tei") else route for route in GOOD
    }
    assert here >= routes


def check(http: httpx.Client, route: str, body: bytes, content_type: str) -> None:
    reply = http.post(route, content=body, headers={"content-type": content_type})
    assert reply.status_code in STATUSES, (reply.status_code, reply.text)
    if reply.status_code != 200:
        decode = msgspec.msgpack.decode if "msgpack" in reply.headers["content-type"] else msgspec.json.decode
        decode(reply.content, type=shape_of(route))
    after = http.post(route, json=GOOD[route])
    assert after.status_code == 200, after.text


@pytest.mark.parametrize("route", GOOD)
def test_json(http: httpx.Client, route: str) -> None:
    @tries(NUM_EXAMPLES)
    @given(body=json_bodies(GOOD[route]))
    def run(body: bytes) -> None:
        check(http, route, body, "application/json")

    run()


@pytest.mark.parametrize("route", NATIVE)
def test_messagepack(http: httpx.Client, route: str) -> None:
    @tries(NUM_EXAMPLES)
    @given(body=msgpack_bodies(GOOD[route]))
    def run(body: bytes) -> None:
        check(http, route, body, "application/msgpack")

    run()
