"""C19: what becomes of a text that is too long, on every route: one table, checked row by row."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Literal

import numpy as np
import pytest

from surfaces.conftest import CLASSIFIER, EMBEDDER, RANKER, SPARSE, Tiny

HEAD, TAIL = "first " * 300, "last " * 300
LONG, SHORT = HEAD + TAIL, "short"
Outcome = Literal["cut", "refused"]


@dataclasses.dataclass(frozen=True)
class Route:
    """How a route is asked, and what its words for truncation are.

    Attributes:
        texts: the field of the items; a dot leads inwards.
        fields: all that it needs besides.
        true, false, left: fields that cut, refuse, and keep the tail; None = it has no word for it.
        max_length: tokens that its model takes.
        refusal: status of a text that is too long.
    """

    path: str
    texts: str
    fields: dict[str, Any]
    true: dict[str, Any] | None
    false: dict[str, Any] | None
    left: dict[str, Any] | None
    max_length: int
    refusal: int = 400
    takes_one: bool = True

    def body(self, texts: Any, words: dict[str, Any] | None) -> dict[str, Any]:
        body: dict[str, Any] = {**self.fields, **(words or {})}
        outer, _, inner = self.texts.partition(".")
        return body | {outer: {**self.fields.get(outer, {}), inner: texts} if inner else texts}


TRUE, FALSE, LEFT = {"truncate": True}, {"truncate": False}, {"truncation_side": "left"}
TEI_LEFT = {"truncation_direction": "Left"}
TRUNCATION, NO_TRUNCATION = {"truncation": True}, {"truncation": False}
RANK = {"model": RANKER, "query": "q"}
ROUTES = {
    route.path: route
    for route in (
        Route("/v1/embed", "input", {"model": EMBEDDER}, TRUE, FALSE, LEFT, 128),
        Route("/v1/embeddings", "input", {"model": EMBEDDER}, TRUE, FALSE, LEFT, 128),
        Route("/v1/rerank", "documents", RANK, TRUE, FALSE, LEFT, 64, takes_one=False),
        Route("/v1/classify", "input", {"model": CLASSIFIER}, TRUE, FALSE, LEFT, 64),
        Route("/v1/similarity", "input", {"model": EMBEDDER, "source": "q"}, TRUE, FALSE, LEFT, 128),
        Route(
            "/v2/embed",
            "texts",
            {"model": EMBEDDER},
            {"truncate": "END"},
            {"truncate": "NONE"},
            {"truncate": "START"},
            128,
        ),
        Route("/v2/rerank", "documents", RANK, None, None, None, 64, takes_one=False),
        Route("/jina/v1/embeddings", "input", {"model": EMBEDDER}, TRUE, FALSE, None, 128),
        Route("/jina/v1/rerank", "documents", RANK, TRUE, FALSE, None, 64, takes_one=False),
        Route("/voyage/v1/embeddings", "input", {"model": EMBEDDER}, TRUNCATION, NO_TRUNCATION, None, 128),
        Route("/voyage/v1/rerank", "documents", RANK, TRUNCATION, NO_TRUNCATION, None, 64, takes_one=False),
        Route(f"/tei/{EMBEDDER}/embed", "inputs", {}, TRUE, FALSE, TEI_LEFT, 128, 413),
        Route(f"/tei/{SPARSE}/embed_sparse", "inputs", {}, TRUE, FALSE, TEI_LEFT, 64, 413),
        Route(f"/tei/{RANKER}/rerank", "texts", {"query": "q"}, TRUE, FALSE, TEI_LEFT, 64, 413, takes_one=False),
        Route(f"/tei/{CLASSIFIER}/predict", "inputs", {}, TRUE, FALSE, TEI_LEFT, 64, 413),
        Route(
            f"/tei/{EMBEDDER}/similarity",
            "inputs.sentences",
            {"inputs": {"source_sentence": "q"}},
            {"parameters": TRUE},
            {"parameters": FALSE},
            {"parameters": TEI_LEFT},
            128,
            413,
        ),
    )
}


def batch(route: Route, *texts: str) -> Any:
    return [[text] for text in texts] if route.path.endswith("predict") else list(texts)


def num_tokens(tiny: Tiny, route: Route) -> int:
    """Of the long text, special tokens included; of a pair, with its query."""
    model = route.fields.get("model") or route.path.split("/")[2]
    texts = [LONG, route.fields["query"]] if "query" in route.fields else [LONG]
    return sum(tiny.ask("/v1/tokenize", model=model, input=texts)["num_tokens"])


@pytest.mark.parametrize("path", ROUTES)
def test_true_cuts_false_refuses_absent_is_the_servers_own(tiny: Tiny, path: str) -> None:
    route = ROUTES[path]
    given = num_tokens(tiny, route)
    for words, outcome in ((route.true, "cut"), (route.false, "refused"), ({}, "cut")):
        if words is None:
            continue
        for texts, num_cut in ((batch(route, LONG), 1), (batch(route, SHORT, LONG, LONG), 2), (LONG, 1)):
            if texts is LONG and not route.takes_one:
                continue
            reply = tiny.post(path, **route.body(texts, words))
            if outcome == "cut":
                assert reply.status_code == 200, reply.text
                assert reply.headers["x-shoal-truncated"] == str(num_cut)
            else:
                assert reply.status_code == route.refusal, reply.text
                stated = re.search(r"has (\d+) tokens, special tokens included; \S+ takes (\d+)", reply.text)
                assert stated is not None, reply.text
                assert (int(stated[1]), int(stated[2])) == (given, route.max_length)
                name = route.texts.rpartition(".")[2]
                assert f"{name}[{1 if len(texts) == 3 else 0}]" in reply.text


def answer(tiny: Tiny, route: Route, text: str, words: dict[str, Any]) -> Any:
    """The reply to one text, without what differs from request to request."""
    reply = tiny.post(route.path, **route.body(batch(route, text), words))
    assert reply.status_code == 200, reply.text
    body = reply.json()
    if isinstance(body, dict):
        body = {name: body[name] for name in ("data", "embeddings", "results", "scores") if name in body}
    return _flat(body)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [number for key in sorted(value) if key not in ("document", "text") for number in _flat(value[key])]
    if isinstance(value, list):
        return [number for entry in value for number in _flat(entry)]
    return [value] if isinstance(value, (int, float)) else []


@pytest.mark.parametrize("path", [path for path, route in ROUTES.items() if route.left])
def test_left_keeps_the_tail(tiny: Tiny, path: str) -> None:
    route = ROUTES[path]
    assert route.left is not None
    head = answer(tiny, route, LONG, {})
    tail = answer(tiny, route, LONG, route.left)
    np.testing.assert_allclose(head, answer(tiny, route, HEAD, {}), atol=1e-5)
    np.testing.assert_allclose(tail, answer(tiny, route, TAIL, route.left), atol=1e-5)
    assert head != tail


@pytest.mark.parametrize("route", ["/v1/embed", "/v1/embeddings"])
def test_overflow_is_another_word_for_truncate(tiny: Tiny, route: str) -> None:
    one = ROUTES[route]
    np.testing.assert_allclose(
        answer(tiny, one, LONG, {"overflow": "truncate"}), answer(tiny, one, LONG, TRUE), atol=1e-5
    )
    refused = tiny.post(route, **one.body(LONG, {"overflow": "error"}))
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
    for words in (
        {"overflow": "chunk", "truncate": False},
        {"overflow": "error", "truncate": True},
        {"overflow": "no"},
    ):
        wrong = tiny.post(route, **one.body(LONG, words))
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "overflow")


@pytest.mark.parametrize("route", ["/v1/embed", "/v1/embeddings"])
@pytest.mark.parametrize("fields", [{}, {"prompt_name": "query"}])
def test_chunk_is_the_weighted_mean_of_windows(tiny: Tiny, route: str, fields: dict[str, str]) -> None:
    """The formula of docs/surfaces.md, with the windows' vectors asked for one by one."""
    tokens = tiny.ask("/v1/tokenize", model=EMBEDDER, input=LONG, add_special_tokens=False)["results"][0]["ids"]
    prompt = "query: " if fields else ""
    prefix = tiny.ask("/v1/tokenize", model=EMBEDDER, input=prompt, add_special_tokens=False)["results"][0]["ids"]
    own = 128 - 2 - len(prefix)
    windows = [tokens[start : start + own] for start in range(0, len(tokens), own)]
    inputs = [[*prefix, *window] for window in windows]
    vectors = tiny.embed(inputs, input_tokenizer=EMBEDDER)  # type: ignore[arg-type]
    weights = np.array([len(window) for window in windows], np.float64)
    expected = (vectors * weights[:, None]).sum(axis=0) / weights.sum()
    expected /= np.linalg.norm(expected)
    reply = tiny.ask(route, model=EMBEDDER, input=[SHORT, LONG], overflow="chunk", **fields)
    rows = reply["embeddings"] if route == "/v1/embed" else [row["embedding"] for row in reply["data"]]
    np.testing.assert_allclose(rows[1], expected, atol=1e-5)
    np.testing.assert_allclose(rows[0], tiny.embed(SHORT, **fields)[0], atol=1e-5)
    if route == "/v1/embed":
        assert reply["truncated"] == [False, False]
        assert reply["num_tokens"][1] == len(tokens) + len(windows) * (2 + len(prefix))


def test_only_dense_vectors_are_embedded_in_windows(tiny: Tiny) -> None:
    reply = tiny.post("/v1/embed", model=SPARSE, input=LONG, outputs=["sparse"], overflow="chunk")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "overflow")
