"""Similarity over HTTP, on the native route and on TEI's: what the vectors themselves give."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from surfaces.conftest import EMBEDDER, QUERY, RANKER, TEXTS, Tiny

ROUTE = "/v1/similarity"
LONG = "first " * 300 + "last " * 300


def test_scores_are_those_of_the_vectors(tiny: Tiny) -> None:
    reply = tiny.ask(ROUTE, model=EMBEDDER, source=QUERY, input=TEXTS)
    assert reply["function"] == "cosine"
    source, *texts = tiny.embed([QUERY, *TEXTS])
    np.testing.assert_allclose(reply["scores"], np.stack(texts) @ source, atol=1e-5)
    assert reply["num_tokens"] == tiny.ask("/v1/embed", model=EMBEDDER, input=TEXTS)["num_tokens"]
    assert tiny.ask(ROUTE, model=EMBEDDER, source=QUERY, input=QUERY)["scores"] == [pytest.approx(1, abs=1e-5)]


def test_source_and_texts_are_embedded_alike(tiny: Tiny) -> None:
    fields = {"prompt_name": "query", "truncation_side": "left"}
    reply = tiny.ask(ROUTE, model=EMBEDDER, source=LONG, input=[*TEXTS, LONG], **fields)
    source, *texts = tiny.embed([LONG, *TEXTS, LONG], **fields)
    np.testing.assert_allclose(reply["scores"], np.stack(texts) @ source, atol=1e-5)
    assert reply["truncated"] == [False, False, False, True]


def test_messagepack_holds_the_same(tiny: Tiny) -> None:
    fields = {"model": EMBEDDER, "source": QUERY, "input": TEXTS}
    headers = {"content-type": "application/msgpack"}
    reply = httpx.post(tiny.url + ROUTE, content=msgspec.msgpack.encode(fields), headers=headers, timeout=60)
    scores = msgspec.msgpack.decode(reply.content)["scores"]
    assert scores == pytest.approx(tiny.ask(ROUTE, **fields)["scores"], abs=1e-6)


@pytest.mark.parametrize("base", ["", "/tei", f"/tei/{EMBEDDER}"])
def test_tei(tiny: Tiny, base: str) -> None:
    sentences = {"source_sentence": QUERY, "sentences": TEXTS}
    plain = tiny.post(f"{base}/similarity", inputs=sentences).json()
    assert plain == pytest.approx(tiny.ask(ROUTE, model=EMBEDDER, source=QUERY, input=TEXTS)["scores"], abs=1e-6)
    parameters = {"prompt_name": "query", "truncate": True, "truncation_direction": "Left"}
    long = {"source_sentence": QUERY, "sentences": [LONG]}
    scores = tiny.post(f"{base}/similarity", inputs=long, parameters=parameters).json()
    fields = {"prompt_name": "query", "truncation_side": "left"}
    expected = tiny.ask(ROUTE, model=EMBEDDER, source=QUERY, input=[LONG], **fields)["scores"]
    assert scores == pytest.approx(expected, abs=1e-6)


REFUSED: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "no source": (ROUTE, {"model": EMBEDDER, "input": TEXTS}, 400, "source"),
    "no texts": (ROUTE, {"model": EMBEDDER, "source": "a"}, 400, "input"),
    "a long source": (ROUTE, {"model": EMBEDDER, "source": LONG, "input": "a", "truncate": False}, 400, "source"),
    "a long text": (
        ROUTE,
        {"model": EMBEDDER, "source": "a", "input": ["a", LONG], "truncate": False},
        400,
        "input[1]",
    ),
    "a source beyond the limit": (ROUTE, {"model": EMBEDDER, "source": "a" * 20_000, "input": "a"}, 400, "source"),
    "a cross-encoder": (ROUTE, {"model": RANKER, "source": "a", "input": "a"}, 400, "model"),
    "TEI without sentences": ("/tei/similarity", {"inputs": {"source_sentence": "a"}}, 422, "sentences"),
    "TEI without a source": ("/tei/similarity", {"inputs": {"sentences": ["a"]}}, 422, "source_sentence"),
    "TEI's long source": (
        "/tei/similarity",
        {"inputs": {"source_sentence": LONG, "sentences": ["a"]}, "parameters": {"truncate": False}},
        413,
        "source_sentence",
    ),
    "TEI with plain texts": ("/tei/similarity", {"inputs": ["a"]}, 422, "inputs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(tiny: Tiny, case: str) -> None:
    route, fields, status, named = REFUSED[case]
    reply = tiny.post(route, **fields)
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert named in (error if isinstance(error, str) else error["param"])
