"""The catalog narrowed to a wish: what is in, what is out, and the reason for each."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.catalog import entries
from shoal.catalog.entries import Entry
from shoal.catalog.recommend import Answer, Row, Wish, allows_commercial_use, obstacle, recommend

SMALL = Entry(
    id="a/small",
    outputs=("dense",),
    languages="de en",
    licence="MIT",
    num_parameters=10_000_000,
    max_length=512,
    model_type="bert",
)
LARGE = Entry(id="a/large", outputs=("dense", "sparse"), languages="en", licence="CC-BY-NC-4.0", size_mib=1000)
SILENT = Entry(id="a/silent", outputs=("dense",))
JUDGE = Entry(id="a/judge", operations=("classify",), purpose="sentiment", languages="de", num_parameters=1_000_000)
KNOWN = (SILENT, LARGE, SMALL, JUDGE)


def row(wish: Wish, entry: Entry) -> Row:
    return next(row for row in recommend(KNOWN, wish) if row.entry is entry)


def fitting(wish: Wish, **options: bool) -> list[str]:
    return [row.entry.id for row in recommend(KNOWN, wish) if row.fits(**options)]


def test_an_empty_wish_keeps_all_small_ones_first_and_unknown_sizes_last() -> None:
    assert fitting(Wish()) == ["a/judge", "a/small", "a/large", "a/silent"]


@pytest.mark.parametrize(
    ("wish", "kept", "kept_with_unknown"),
    [
        ({"operation": "classify"}, ["a/judge"], ["a/judge"]),
        ({"output": "sparse"}, ["a/large"], ["a/large"]),
        ({"purpose": "sentiment"}, ["a/judge"], ["a/judge"]),
        ({"languages": ("de",)}, ["a/judge", "a/small"], ["a/judge", "a/small", "a/silent"]),
        ({"languages": ("DE_ch", "en")}, ["a/small"], ["a/small", "a/silent"]),
        ({"licence": "mit"}, ["a/small"], ["a/judge", "a/small", "a/silent"]),
        ({"licence": "commercial"}, ["a/small"], ["a/judge", "a/small", "a/silent"]),
        ({"max_memory_bytes": 40_000_000}, ["a/judge", "a/small"], ["a/judge", "a/small", "a/silent"]),
        ({"max_memory_bytes": 39_999_999}, ["a/judge"], ["a/judge", "a/silent"]),
        (
            {"max_memory_bytes": 20_000_000, "precision": "bfloat16"},
            ["a/judge", "a/small"],
            ["a/judge", "a/small", "a/silent"],
        ),
        ({"min_length": 512}, ["a/small"], ["a/judge", "a/small", "a/large", "a/silent"]),
        ({"min_length": 513}, [], ["a/judge", "a/large", "a/silent"]),
        ({"operation": "embed", "languages": ("de",), "licence": "commercial"}, ["a/small"], ["a/small", "a/silent"]),
    ],
)
def test_narrowing(wish: dict[str, Any], kept: list[str], kept_with_unknown: list[str]) -> None:
    assert fitting(Wish(**wish)) == kept
    assert fitting(Wish(**wish), takes_unknown=True) == kept_with_unknown


def test_each_part_of_a_wish_gets_its_reason() -> None:
    wish = Wish(operation="embed", languages=("de",), licence="commercial", max_memory_bytes=10**9, min_length=100)
    assert row(wish, SMALL).answers == (
        Answer("operation", True, "embed"),
        Answer("language", True, "reads de, one of 2 languages"),
        Answer("memory", True, "40 MB of weights (10 M parameters in float32)"),
        Answer("length", True, "texts of 512 tokens"),
        Answer("licence", True, "MIT"),
    )
    assert [answer.reason for answer in row(wish, LARGE).answers if answer.is_met is False] == [
        "does not state de",
        "1,049 MB of weights (as stored)",
        "CC-BY-NC-4.0",
    ]


def test_unknown_facts_are_named_only_where_nothing_else_speaks_against_it() -> None:
    wish = Wish(operation="embed", languages=("de",), max_memory_bytes=10**9)
    assert row(wish, SILENT).unknown == ("language", "memory")
    assert row(wish, SMALL).unknown == ()
    assert row(Wish(operation="rerank", languages=("de",)), SILENT).unknown == ()


def test_licences() -> None:
    assert [allows_commercial_use(licence) for licence in ("MIT", "CC-BY-NC-SA-4.0", "LicenseRef-Gemma", "")] == [
        True,
        False,
        None,
        None,
    ]


def test_what_cannot_be_served_says_why() -> None:
    assert obstacle(SMALL) == ""
    assert "not stated" in obstacle(SILENT)
    made_up = Entry(id="a/b", outputs=("dense",), model_type="made-up")
    assert obstacle(made_up) == "no family for made-up yet"
    own = Entry(id="a/b", outputs=("dense",), model_type="bert", needs_own_code=True)
    assert "code from its repository" in obstacle(own)


def test_the_issue_s_example_finds_something_in_the_shipped_catalog() -> None:
    wish = Wish(operation="rerank", languages=("de",), max_memory_bytes=2 * 10**9)
    found = [row for row in recommend(entries(), wish) if row.fits()]
    assert found
    for found_row in found:
        assert "rerank" in found_row.entry.operations
        assert "de" in found_row.entry.languages.split()
        assert found_row.memory_bytes is not None
        assert found_row.memory_bytes <= 2 * 10**9
