"""Tokens over HTTP: those of the model's own tokenizer, with places in the text as it was sent."""

from __future__ import annotations

import functools
from typing import Any

import httpx
import msgspec
import pytest
import transformers

from surfaces.conftest import CLASSIFIER, EMBEDDER, RANKER, SPARSE, TEXTS, Tiny
from tiny_models import NASTY_TEXTS, quiet

ROUTE = "/v1/tokenize"
MODELS = (EMBEDDER, RANKER, CLASSIFIER, SPARSE)


@functools.cache
def tokenizer_of(tiny: Tiny, model: str) -> Any:
    with quiet():
        return transformers.AutoTokenizer.from_pretrained(tiny.directory / model, local_files_only=True)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("add_special_tokens", [True, False])
def test_tokens_are_those_of_the_models_own_tokenizer(tiny: Tiny, model: str, add_special_tokens: bool) -> None:
    """C15: nothing about a text is altered, and nothing is cut."""
    tokenizer = tokenizer_of(tiny, model)
    reply = tiny.ask(ROUTE, model=model, input=NASTY_TEXTS, add_special_tokens=add_special_tokens)
    assert reply["max_length"] in (64, 128)
    assert max(reply["num_tokens"]) > 300
    assert reply["usage"]["num_tokens"] == sum(reply["num_tokens"])
    for text, row, count in zip(NASTY_TEXTS, reply["results"], reply["num_tokens"], strict=True):
        expected = tokenizer(
            text,
            add_special_tokens=add_special_tokens,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
            verbose=False,
        )
        assert row["ids"] == expected["input_ids"]
        assert row["tokens"] == tokenizer.convert_ids_to_tokens(row["ids"])
        assert row["offsets"] == [list(place) for place in expected["offset_mapping"]]
        assert len(row["special"]) == len(row["ids"]) == count
        assert sum(row["special"]) == (2 if add_special_tokens else 0)


def test_offsets_count_code_points(tiny: Tiny) -> None:
    text = "😀 e\u0301 Paris"
    row = tiny.ask(ROUTE, model=SPARSE, input=text, add_special_tokens=False)["results"][0]
    start, end = row["offsets"][-1]
    assert end == len(text)
    assert "Paris".endswith(text[start:end])
    assert text[row["offsets"][0][0] : row["offsets"][0][1]] == "😀"


@pytest.mark.parametrize("fields", [{"prompt_name": "query"}, {"prompt": "query: "}, {"input_type": "query"}])
def test_a_prompt_stands_in_front_if_it_is_asked_for(tiny: Tiny, fields: dict[str, str]) -> None:
    (row,) = tiny.ask(ROUTE, model=EMBEDDER, input=TEXTS[0], **fields)["results"]
    (whole,) = tiny.ask(ROUTE, model=EMBEDDER, input="query: " + TEXTS[0])["results"]
    assert (row["ids"], row["tokens"]) == (whole["ids"], whole["tokens"])
    assert row["offsets"] == [[max(0, start - 7), max(0, end - 7)] for start, end in whole["offsets"]]
    assert tiny.ask(ROUTE, model=EMBEDDER, input=TEXTS[0])["num_tokens"] < [len(row["ids"])]


def test_counts_are_those_of_embedding(tiny: Tiny) -> None:
    counts = tiny.ask(ROUTE, model=EMBEDDER, input=TEXTS)["num_tokens"]
    assert tiny.ask("/v1/embed", model=EMBEDDER, input=TEXTS)["num_tokens"] == counts


def test_messagepack_holds_the_same(tiny: Tiny) -> None:
    body = msgspec.msgpack.encode({"model": EMBEDDER, "input": TEXTS})
    headers = {"content-type": "application/msgpack"}
    reply = msgspec.msgpack.decode(httpx.post(tiny.url + ROUTE, content=body, headers=headers, timeout=60).content)
    assert reply["results"] == tiny.ask(ROUTE, model=EMBEDDER, input=TEXTS)["results"]


@pytest.mark.parametrize("base", ["/tei", f"/tei/{RANKER}"])
def test_tei(tiny: Tiny, base: str) -> None:
    if base == "/tei":
        assert tiny.post(f"{base}/tokenize", inputs="x").status_code == 400  # every model could be meant
        return
    rows = tiny.post(f"{base}/tokenize", inputs=TEXTS).json()
    native = tiny.ask(ROUTE, model=RANKER, input=TEXTS)["results"]
    for text, row, expected in zip(TEXTS, rows, native, strict=True):
        assert [token["id"] for token in row] == expected["ids"]
        assert [token["special"] for token in row] == expected["special"]
        for token, name, (start, end) in zip(row, expected["tokens"], expected["offsets"], strict=True):
            where = (None, None, name) if token["special"] else (start, end, text[start:end])
            assert (token["start"], token["stop"], token["text"]) == where
    bare = tiny.post(f"{base}/tokenize", inputs=TEXTS[0], add_special_tokens=False).json()
    assert bare == [rows[0][1:-1]]


@pytest.mark.parametrize("skip", [True, False])
def test_tei_makes_texts_of_ids(tiny: Tiny, skip: bool) -> None:
    tokenizer = tokenizer_of(tiny, RANKER)
    ids = [tokenizer(text)["input_ids"] for text in TEXTS]
    texts = tiny.post(f"/tei/{RANKER}/decode", ids=ids, skip_special_tokens=skip).json()
    assert texts == [tokenizer.decode(row, skip_special_tokens=skip) for row in ids]
    assert tiny.post(f"/tei/{RANKER}/decode", ids=ids[0], skip_special_tokens=skip).json() == texts[:1]


REFUSED: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "ids to tokenise": (ROUTE, {"model": EMBEDDER, "input": [1, 2]}, 400, "input"),
    "no texts": (ROUTE, {"model": EMBEDDER, "input": []}, 400, "input"),
    "an unknown prompt": (ROUTE, {"model": EMBEDDER, "input": "a", "prompt_name": "none"}, 400, "prompt_name"),
    "texts to decode": (f"/tei/{RANKER}/decode", {"ids": ["a"]}, 422, "ids"),
    "an id beyond the vocabulary": (f"/tei/{RANKER}/decode", {"ids": [[1], [999_999]]}, 422, "ids[1]"),
    "no ids": (f"/tei/{RANKER}/decode", {"ids": []}, 422, "ids"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(tiny: Tiny, case: str) -> None:
    route, fields, status, named = REFUSED[case]
    reply = tiny.post(route, **fields)
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert named in (error if isinstance(error, str) else error["param"])
