"""What holds on every route, whatever it does and whose API it is: the cases of broken, empty and odd requests."""

from __future__ import annotations

import json
from typing import Any

import httpx
import msgspec
import pytest

from good_requests import GOOD, items_field, shape_of
from shoal.gateway.openapi import describe
from surfaces.conftest import CLASSIFIER, EMBEDDER, QUERY, RANKER, SPARSE, TEXTS, Tiny

DOCUMENT = describe()
TEXT_ROUTES = [route for route in GOOD if items_field(route) != "ids"]
NAMING = [route for route in GOOD if "model" in GOOD[route]]
LIST_ONLY = [route for route in GOOD if items_field(route) == "documents" or route.endswith("/rerank")]


def refused(tiny: Tiny, route: str, status: int, **request: Any) -> str:
    """Sends what must be refused; the error's text, its shape and status checked."""
    reply = httpx.post(tiny.url + route, timeout=60, **request)
    assert reply.status_code == (422 if "/tei" in route and status == 400 else status), reply.text
    assert reply.headers["content-type"] == "application/json"
    error = msgspec.json.decode(reply.content, type=shape_of(route))
    return str(msgspec.to_builtins(error))


def with_items(route: str, items: Any) -> dict[str, Any]:
    """The good request with other texts."""
    field = items_field(route)
    if route.endswith("/similarity") and "/tei/" in route:
        return GOOD[route] | {"inputs": {"source_sentence": QUERY, "sentences": items}}
    if route.endswith("/predict") and isinstance(items, list) and all(isinstance(item, str) for item in items):
        items = [[item] for item in items]
    return GOOD[route] | {field: items}


def named(route: str) -> str:
    """What errors call the texts."""
    return "sentences" if "/tei/" in route and route.endswith("/similarity") else items_field(route)


@pytest.mark.parametrize("route", GOOD)
def test_broken_bodies_are_refused_by_name(tiny: Tiny, route: str) -> None:
    """C13."""
    refused(tiny, route, 400, json={})
    refused(tiny, route, 400, json=[])
    for items in ([], None, 5, {"a": "b"}, ["a", 5], [None]):
        assert named(route) in refused(tiny, route, 400, json=with_items(route, items)), items
    missing = {name: value for name, value in GOOD[route].items() if name != items_field(route)}
    assert items_field(route) in refused(tiny, route, 400, json=missing)
    headers = {"content-type": "application/json"}
    whole = json.dumps(GOOD[route]).encode()
    for content in (b"", b"{", whole[:-1], whole + b"]", b"\xff" + whole):
        refused(tiny, route, 400, content=content, headers=headers)
    for kind in ("application/x-www-form-urlencoded", "text/plain"):
        refused(tiny, route, 415, content=whole, headers={"content-type": kind})
    refused(tiny, route, 415, content=whole, headers=headers | {"content-encoding": "gzip"})
    assert tiny.post(route, **GOOD[route]).status_code == 200


@pytest.mark.parametrize("route", TEXT_ROUTES)
def test_empty_texts_are_texts(tiny: Tiny, route: str) -> None:
    """C14: each is answered in its place, as it is alone."""
    texts = ["alpha", "", "  ", "beta"]
    together = answers(tiny, route, with_items(route, texts))
    assert len(together) == 4
    for place, text in enumerate(texts):
        (alone,) = answers(tiny, route, with_items(route, [text]))
        assert alone == pytest.approx(together[place], abs=1e-5, nan_ok=False)


def answers(tiny: Tiny, route: str, body: dict[str, Any]) -> list[list[float]]:
    """The numbers of the reply to each text, in the order of the texts."""
    body = {name: value for name, value in body.items() if name not in ("top_n", "top_k", "threshold", "labels")}
    reply = tiny.post(route, **body)
    assert reply.status_code == 200, reply.text
    found = reply.json()
    if isinstance(found, dict):
        if isinstance(found.get("embeddings"), dict):  # Cohere's, by type
            columns = [found["embeddings"][kind] for kind in sorted(found["embeddings"])]
            return [[number for column in columns for number in column[place]] for place in range(len(columns[0]))]
        found = next(found[name] for name in ("data", "results", "embeddings", "scores") if name in found)
    if found and isinstance(found[0], dict) and "index" in found[0]:
        found = sorted(found, key=lambda row: row["index"])
    return [_numbers(row) for row in found]


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for key in sorted(value) if key != "index" for number in _numbers(value[key])]
    if isinstance(value, list):
        return [number for entry in value for number in _numbers(entry)]
    if isinstance(value, str):
        return [float(byte) for byte in value.encode()]
    return [float(value)] if value is not None else []


def described(route: str) -> dict[str, Any]:
    """The schema of a route's request."""
    path = "/".join(["", "tei", *route.split("/")[3:]]) if route.startswith("/tei/") else route
    body = DOCUMENT["paths"][path.rstrip("/")]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schema: dict[str, Any] = DOCUMENT["components"]["schemas"][body["$ref"].rpartition("/")[2]]
    return schema


@pytest.mark.parametrize("route", GOOD)
def test_null_is_as_absent_and_unknown_fields_are_ignored(tiny: Tiny, route: str) -> None:
    """C24."""
    schema = described(route)
    bare = {name: GOOD[route][name] for name in schema["required"] if name in GOOD[route]}
    nulls = dict.fromkeys(set(schema["properties"]) - set(schema["required"]))
    plain = tiny.post(route, **bare)
    same = tiny.post(route, **(bare | nulls | {"user": None, "extra": 1, "Model": "other"}))
    assert (plain.status_code, same.status_code) == (200, 200), same.text
    keep = ("data", "results", "embeddings", "scores")
    first, second = (
        {name: body[name] for name in keep if name in body} if isinstance(body := reply.json(), dict) else body
        for reply in (plain, same)
    )
    assert _numbers(second) == pytest.approx(_numbers(first), abs=1e-5)


@pytest.mark.parametrize("route", GOOD)
def test_an_unknown_model_is_not_found(tiny: Tiny, route: str) -> None:
    """C27."""
    if route in NAMING:
        error = refused(tiny, route, 404, json=GOOD[route] | {"model": "gpt-4o"})
    else:
        path = "/".join(["/tei/gpt-4o", *route.split("/")[3:]])
        error = refused(tiny, path, 404, json=GOOD[route])
    assert "gpt-4o" in error


@pytest.mark.parametrize("route", [route for route in TEXT_ROUTES if not route.endswith("tokenize")])
def test_a_model_for_something_else_says_what_it_can_do(tiny: Tiny, route: str) -> None:
    """C27."""
    own = next((name for name in (EMBEDDER, RANKER, CLASSIFIER, SPARSE) if name in route), GOOD[route].get("model"))
    other = EMBEDDER if own in (CLASSIFIER, "tiny-tags") else CLASSIFIER
    if route.endswith(("/embed_sparse", "/embed_all")):
        other = EMBEDDER
    if route in NAMING:
        reply = tiny.post(route, **GOOD[route] | {"model": other})
    else:
        reply = tiny.post("/".join([f"/tei/{other}", *route.split("/")[3:]]), **GOOD[route])
    assert reply.status_code == 400, reply.text
    msgspec.json.decode(reply.content, type=shape_of(route))
    assert "it can: " in reply.text or "it has: " in reply.text


USAGE: dict[str, tuple[str, ...]] = {
    "/v1/embed": ("usage", "num_tokens"),
    "/v1/embeddings": ("usage", "prompt_tokens"),
    "/v1/classify": ("usage", "num_tokens"),
    "/v1/similarity": ("usage", "num_tokens"),
    "/v1/tokenize": ("usage", "num_tokens"),
    "/v1/rerank": ("usage", "num_tokens"),
    "/cohere/v2/embed": ("meta", "billed_units", "input_tokens"),
    "/cohere/v2/rerank": ("meta", "tokens", "input_tokens"),
    "/jina/v1/embeddings": ("usage", "total_tokens"),
    "/jina/v1/rerank": ("usage", "total_tokens"),
    "/voyage/v1/embeddings": ("usage", "total_tokens"),
    "/voyage/v1/rerank": ("usage", "total_tokens"),
}


@pytest.mark.parametrize("route", USAGE)
@pytest.mark.parametrize("texts", [TEXTS, ["東京は日本の首都です", "北京是中国的首都"], ["word " * 500, "short"]])
def test_usage_counts_the_tokens_that_ran(tiny: Tiny, route: str, texts: list[str]) -> None:
    """C28: special tokens included, after truncation; a pair with its query and the special tokens between."""
    model = GOOD[route]["model"]
    counted = tiny.ask("/v1/tokenize", model=model, input=texts)
    expected, limit = counted["num_tokens"], counted["max_length"]
    body = {"model": model, items_field(route): texts}
    if items_field(route) == "documents":
        body["query"] = QUERY
        query = tiny.ask("/v1/tokenize", model=model, input=QUERY)["num_tokens"][0]
        expected = [count + query for count in expected]
    if route.endswith("similarity"):
        body["source"] = QUERY
    if not route.endswith("tokenize"):
        expected = [min(limit, count) for count in expected]
    reply = tiny.post(route, **body).json()
    for name in USAGE[route]:
        reply = reply[name]
    assert reply == sum(expected)


def test_sparse_counts_too(tiny: Tiny) -> None:
    """C28."""
    reply = tiny.ask("/v1/embed", model=SPARSE, input=TEXTS, outputs=["sparse"])
    assert reply["num_tokens"] == tiny.ask("/v1/tokenize", model=SPARSE, input=TEXTS)["num_tokens"]
