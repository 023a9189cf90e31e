"""POST /v1/rerank: scores are the reference's, order and places are right, and bad requests are refused by name."""

from __future__ import annotations

import json
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from e2e.conftest import Fleet
from e2e.running import MODEL, assert_alive
from tiny_heads import cross_scores, load_cross_encoder
from tiny_models import NASTY_TEXTS

ROUTE = "/v1/rerank"
QUERY = "What is the capital of France?"
CAPITALS = [
    "Berlin is the capital of Germany and its largest city.",
    "Madrid is the capital of Spain.",
    "Paris is the capital and the largest city of France.",
    "Rome is the capital city of Italy.",
    "Canberra, not Sydney, is the capital of Australia.",
]


def scores_by_index(reply: dict[str, Any]) -> list[float]:
    """Scores in the order of the documents; checks that results are sorted and complete."""
    results = reply["results"]
    assert [row["relevance_score"] for row in results] == sorted(
        (row["relevance_score"] for row in results), reverse=True
    )
    by_index = {row["index"]: row["relevance_score"] for row in results}
    assert sorted(by_index) == list(range(len(results)))
    return [by_index[index] for index in range(len(results))]


@pytest.mark.parametrize("name", ["tiny-cross", "tiny-identity"])
@pytest.mark.parametrize("raw_scores", [False, True])
def test_scores_are_those_of_the_reference(fleet: Fleet, name: str, raw_scores: bool) -> None:
    """C38, C14, C15: what is odd about a document changes nothing but its own score."""
    import torch

    judge = load_cross_encoder(fleet.directories[name])
    documents = [*CAPITALS, *NASTY_TEXTS]
    activation = torch.nn.Identity() if raw_scores else judge.activation_fn
    expected = cross_scores(judge, QUERY, documents, activation_fn=activation)
    reply = fleet.ask(ROUTE, name, query=QUERY, documents=documents, raw_scores=raw_scores)
    assert reply["method"] == "cross_encoder"
    np.testing.assert_allclose(scores_by_index(reply), expected, atol=1e-4)
    assert len(reply["num_tokens"]) == len(reply["truncated"]) == len(documents)
    assert reply["usage"]["num_tokens"] == sum(reply["num_tokens"])
    assert max(reply["num_tokens"]) == 64
    for index in (0, 2, 7):
        alone = fleet.ask(ROUTE, name, query=QUERY, documents=[documents[index]], raw_scores=raw_scores)
        assert alone["results"][0]["relevance_score"] == pytest.approx(expected[index], abs=1e-4)


def test_two_labels_rank_by_the_softmax_of_the_second(fleet: Fleet) -> None:
    """C38."""
    judge = load_cross_encoder(fleet.directories["tiny-two"])
    expected = cross_scores(judge, QUERY, CAPITALS, apply_softmax=True)[:, 1]
    reply = fleet.ask(ROUTE, "tiny-two", query=QUERY, documents=CAPITALS)
    np.testing.assert_allclose(scores_by_index(reply), expected, atol=1e-4)


@pytest.mark.parametrize("raw_scores", [False, True])
def test_a_decoder_is_asked_in_its_own_frame(fleet: Fleet, raw_scores: bool) -> None:
    """C38: query and documents alone are sent; the template is the server's, and a long document loses none of it."""
    import torch

    judge = load_cross_encoder(fleet.directories["tiny-judge"])
    documents = [*CAPITALS, "", "  ", "[SEP] </s> <|endoftext|>", "def f(x):\n    return x\n", "word " * 400]
    activation = torch.nn.Identity() if raw_scores else judge.activation_fn
    expected = cross_scores(judge, QUERY, documents, activation_fn=activation)
    reply = fleet.ask(ROUTE, "tiny-judge", query=QUERY, documents=documents, raw_scores=raw_scores)
    assert reply["method"] == "cross_encoder"
    np.testing.assert_allclose(scores_by_index(reply), expected, atol=1e-4 * max(1.0, np.abs(expected).max()))
    assert reply["truncated"] == [False] * 9 + [True]
    best = fleet.ask(ROUTE, "tiny-judge", query=QUERY, documents=documents, top_n=3, return_documents=True)["results"]
    order = np.argsort(-expected, kind="stable")[:3].tolist()
    assert [row["index"] for row in best] == order
    assert [row["document"]["text"] for row in best] == [documents[index] for index in order]


def test_an_instruction_is_for_models_that_are_told(fleet: Fleet) -> None:
    judge = load_cross_encoder(fleet.directories["tiny-judge"])
    expected = cross_scores(judge, QUERY, CAPITALS, prompt="Find a city.")
    told = {"query": QUERY, "documents": CAPITALS, "instruction": "Find a city."}
    np.testing.assert_allclose(scores_by_index(fleet.ask(ROUTE, "tiny-judge", **told)), expected, atol=1e-4)
    assert httpx.get(f"{fleet.url}/v1/models/tiny-judge").json()["takes_instruction"]
    for model in ("tiny-cross", MODEL):
        refused = httpx.post(fleet.url + ROUTE, json={"model": model, **told}, timeout=30)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "instruction")


def test_a_model_that_embeds_ranks_by_cosine_and_says_so(fleet: Fleet) -> None:
    """C38: never a row of zeros, and Paris first."""
    reply = fleet.ask(ROUTE, MODEL, query=QUERY, documents=CAPITALS)
    assert reply["method"] == "cosine"
    vectors = fleet.embed(MODEL, [QUERY, *CAPITALS])
    np.testing.assert_allclose(scores_by_index(reply), vectors[1:] @ vectors[0], atol=1e-4)
    assert reply["results"][0]["index"] == 2
    assert len(reply["num_tokens"]) == len(CAPITALS)


def test_query_and_documents_take_the_models_own_prompts_when_compared(fleet: Fleet) -> None:
    reply = fleet.ask(ROUTE, "tiny-prompts", query=QUERY, documents=CAPITALS)
    query = fleet.embed("tiny-prompts", QUERY, prompt_name="query")[0]
    documents = fleet.embed("tiny-prompts", CAPITALS, prompt_name="document")
    np.testing.assert_allclose(scores_by_index(reply), documents @ query, atol=1e-4)


def test_top_n_and_documents(fleet: Fleet) -> None:
    """C38: the best ones, each with its own text, from texts and from objects alike."""
    whole = fleet.ask(ROUTE, "tiny-cross", query=QUERY, documents=CAPITALS)
    objects = [{"text": text, "title": "ignored"} for text in CAPITALS]
    for documents in (CAPITALS, objects):
        reply = fleet.ask(ROUTE, "tiny-cross", query=QUERY, documents=documents, top_n=3, return_documents=True)
        assert [row["index"] for row in reply["results"]] == [row["index"] for row in whole["results"][:3]]
        assert all(row["document"] == {"text": CAPITALS[row["index"]]} for row in reply["results"])
        assert len(reply["num_tokens"]) == 5
    assert "document" not in whole["results"][0]
    assert len(fleet.ask(ROUTE, "tiny-cross", query=QUERY, documents=CAPITALS, top_n=9)["results"]) == 5


@pytest.mark.parametrize("accept", ["application/json", "application/msgpack"])
def test_messagepack(fleet: Fleet, accept: str) -> None:
    documents = [{"text": text} for text in CAPITALS]
    fields: dict[str, Any] = {"query": QUERY, "documents": documents, "return_documents": True}
    body = msgspec.msgpack.encode({"model": "tiny-cross", **fields})
    headers = {"content-type": "application/msgpack", "accept": accept}
    reply = httpx.post(fleet.url + ROUTE, content=body, headers=headers, timeout=60)
    decode = msgspec.json.decode if accept.endswith("json") else msgspec.msgpack.decode
    rows = decode(reply.content)["results"]
    expected = fleet.ask(ROUTE, "tiny-cross", **fields)["results"]
    assert [row["index"] for row in rows] == [row["index"] for row in expected]
    assert [row["document"] for row in rows] == [row["document"] for row in expected]
    np.testing.assert_allclose(
        [row["relevance_score"] for row in rows], [row["relevance_score"] for row in expected], atol=1e-6
    )


def test_only_documents_are_cut(fleet: Fleet) -> None:
    long = "the quick brown fox " * 60
    reply = fleet.ask(ROUTE, "tiny-cross", query=QUERY, documents=["short", long])
    assert reply["truncated"] == [False, True]
    assert reply["num_tokens"][1] == 64
    refused = httpx.post(
        fleet.url + ROUTE,
        json={"model": "tiny-cross", "query": QUERY, "documents": ["short", long], "truncate": False},
    )
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    assert refused.json()["error"]["param"] == "documents[1]"
    query = httpx.post(fleet.url + ROUTE, json={"model": "tiny-cross", "query": long, "documents": ["short"]})
    assert query.status_code == 400
    assert query.json()["error"]["param"] == "query"


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no query": ({"documents": ["a"]}, "query"),
    "no documents": ({"query": "q"}, "documents"),
    "empty list": ({"query": "q", "documents": []}, "documents"),
    "one text": ({"query": "q", "documents": "a"}, "documents"),
    "token ids": ({"query": "q", "documents": [[1, 2]]}, "documents"),
    "a number": ({"query": "q", "documents": ["a", 5]}, "documents[1]"),
    "an object among texts": ({"query": "q", "documents": ["a", {"text": "b"}]}, "documents[1]"),
    "an object without text": ({"query": "q", "documents": [{"text": "a"}, {"body": "b"}]}, "documents[1]"),
    "text is a number": ({"query": "q", "documents": [{"text": "b"}, {"text": 4}]}, "documents[1].text"),
    "top_n": ({"query": "q", "documents": ["a"], "top_n": 0}, "top_n"),
    "query is a list": ({"query": ["q"], "documents": ["a"]}, "query"),
    "half a surrogate pair": ({"query": "q", "documents": ["a", "\ud800"]}, "documents[1]"),
    "classifier of three labels": ({"query": "q", "documents": ["a"], "model": "tiny-classes"}, "model"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_bad_requests_are_refused_by_name(fleet: Fleet, case: str) -> None:
    """C13, C14."""
    fields, param = BROKEN[case]
    content = json.dumps({"model": "tiny-cross", **fields})  # which spells half a surrogate pair, as httpx does not
    reply = httpx.post(fleet.url + ROUTE, content=content, timeout=30)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param
    assert_alive(fleet.url, MODEL)


def test_empty_texts_are_texts(fleet: Fleet) -> None:
    """C14: an empty query or document counts as its special tokens, as in the reference."""
    judge = load_cross_encoder(fleet.directories["tiny-cross"])
    for query, documents in (("", ["alpha", "", "  "]), (QUERY, ["alpha", ""])):
        expected = cross_scores(judge, query, documents)
        reply = fleet.ask(ROUTE, "tiny-cross", query=query, documents=documents)
        np.testing.assert_allclose(scores_by_index(reply), expected, atol=1e-4)
