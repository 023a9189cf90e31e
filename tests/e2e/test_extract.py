"""POST /v1/extract: entities wherever they stand in a long text, places in code points, bad requests refused."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest

from e2e.conftest import Fleet
from e2e.running import MODEL, assert_alive

ROUTE, NAMES = "/v1/extract", "tiny-names"
MARKED = "\U0001f600 e\u0301 Ada Lovelace"
"""Characters of two code units and of two code points, then a name."""


def long_text() -> str:
    """C8: about 2,000 words, a name at four places, two of them side by side."""
    words = ["word"] * 2000
    for place in (10, 388, 389, 1990):
        words[place] = MARKED
    return " ".join(words)


def names(text: str, entities: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """Start and surface of each; checks that places are those of the text as it was sent."""
    assert all(text[row["start"] : row["end"]] == row["text"] for row in entities)
    assert all(row["label"] == "PER" and 0.5 < row["score"] <= 1 for row in entities)
    return [(row["start"], row["text"]) for row in entities]


def places(text: str) -> list[tuple[int, str]]:
    return [(at, "Ada Lovelace") for at in range(len(text)) if text.startswith("Ada Lovelace", at)]


@pytest.mark.parametrize("overlap_tokens", [None, 0, 1, 33, 61])
@pytest.mark.parametrize("aggregation", ["simple", "first", "average", "max"])
def test_entities_beyond_the_window_are_found(fleet: Fleet, aggregation: str, overlap_tokens: int | None) -> None:
    """C8: windows, however they fall."""
    text = long_text()
    short = f"word {MARKED}, {MARKED}."
    reply = fleet.ask(
        ROUTE, NAMES, input=[text, "", short], aggregation=aggregation, overlap_tokens=overlap_tokens, labels=["PER"]
    )
    assert len(places(text)) == 4
    assert names(text, reply["results"][0]) == places(text)
    assert reply["results"][1] == []
    assert names(short, reply["results"][2]) == places(short)
    assert reply["truncated"] == [False, False, False]
    assert reply["num_tokens"][0] > 2000
    assert reply["usage"]["num_tokens"] == sum(reply["num_tokens"])


def test_without_windows_a_text_is_cut_and_says_so_or_refused(fleet: Fleet) -> None:
    text = long_text()
    cut = fleet.ask(ROUTE, NAMES, input=text, overflow="truncate")
    assert (names(text, cut["results"][0]), cut["truncated"]) == (places(text)[:1], [True])
    refused = fleet.post(NAMES, ["short", text], ROUTE, overflow="error")
    assert refused.status_code == 400
    assert (refused.json()["error"]["code"], refused.json()["error"]["param"]) == (
        "context_length_exceeded",
        "input[1]",
    )


def test_tokens_by_themselves_labels_and_threshold(fleet: Fleet) -> None:
    text = "Ada Lovelace met Ada"
    (tokens,) = fleet.ask(ROUTE, NAMES, input=text, aggregation="none")["results"]
    assert [(row["label"], row["text"]) for row in tokens] == [
        ("B-PER", "Ada"),
        ("I-PER", "Lovelace"),
        ("B-PER", "Ada"),
    ]
    assert fleet.ask(ROUTE, NAMES, input=text, labels=["LOC"])["results"] == [[]]
    assert len(fleet.ask(ROUTE, NAMES, input=text, labels=["PER", "LOC"])["results"][0]) == 2
    score = min(row["score"] for row in tokens)
    assert fleet.ask(ROUTE, NAMES, input=text, threshold=(score + 1) / 2)["results"] == [[]]


@pytest.mark.parametrize("accept", ["application/json", "application/msgpack"])
def test_messagepack(fleet: Fleet, accept: str) -> None:
    texts = [long_text(), MARKED]
    headers = {"content-type": "application/msgpack", "accept": accept}
    body = msgspec.msgpack.encode({"model": NAMES, "input": texts})
    reply = httpx.post(fleet.url + ROUTE, content=body, headers=headers, timeout=60)
    decode = msgspec.json.decode if accept.endswith("json") else msgspec.msgpack.decode
    assert decode(reply.content)["results"] == fleet.ask(ROUTE, NAMES, input=texts)["results"]


def test_the_card_says_what_is_found(fleet: Fleet) -> None:
    card = httpx.get(f"{fleet.url}/v1/models/{NAMES}").json()
    assert "extract" in card["operations"]
    assert card["labels"] == ["PER", "LOC"]


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no input": ({}, "input"),
    "token ids": ({"input": [[1, 2]]}, "input"),
    "unknown label": ({"input": "a", "labels": ["person"]}, "labels"),
    "aggregation": ({"input": "a", "aggregation": "mean"}, "aggregation"),
    "overflow": ({"input": "a", "overflow": "wrap"}, "overflow"),
    "negative overlap": ({"input": "a", "overlap_tokens": -1}, "overlap_tokens"),
    "overlap of a whole window": ({"input": "a", "overlap_tokens": 62}, "overlap_tokens"),
    "threshold": ({"input": "a", "threshold": 1}, "threshold"),
    "a model that embeds": ({"input": "a", "model": MODEL}, "model"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_bad_requests_are_refused_by_name(fleet: Fleet, case: str) -> None:
    fields, param = BROKEN[case]
    reply = httpx.post(fleet.url + ROUTE, json={"model": NAMES, **fields}, timeout=30)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param
    assert_alive(fleet.url, MODEL)
