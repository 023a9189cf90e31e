"""`shoal models recommend` and `shoal models list --catalog`, as typed."""

from __future__ import annotations

import json

import pytest

from shoal.catalog import entries


def test_a_table_with_a_reason_in_each_row(run_shoal):
    done = run_shoal("models", "recommend", "--operation", "rerank", "--language", "de", "--max-memory", "2GB")
    assert done.exit_code == 0
    heading, *rows = done.stdout.splitlines()
    assert heading.split()[:2] == ["model", "weights"]
    assert rows
    assert all("rerank; reads de" in row and "MB of weights" in row for row in rows)
    assert f"{len(rows)} of {len(entries())} models fit." in done.stderr
    assert "kept out only by what is unknown: language" in done.stderr


def test_unknown_facts_can_be_let_in(run_shoal):
    arguments = ("models", "recommend", "--operation", "extract", "--licence", "commercial", "--json")
    strict = json.loads(run_shoal(*arguments).stdout)
    loose = json.loads(run_shoal(*arguments, "--include-unknown").stdout)
    assert 0 < len(strict) < len(loose)
    assert {None, True} == {answer["is_met"] for row in loose for answer in row["reasons"]}


def test_all_shows_what_speaks_against_the_others(run_shoal):
    done = run_shoal("models", "recommend", "--output", "sparse", "--all")
    out = [line for line in done.stdout.splitlines() if "out: " in line]
    assert any("out: dense output" in line for line in out)
    assert len(done.stdout.splitlines()) == len(entries()) + 1


def test_json_carries_facts_and_reasons(run_shoal):
    rows = json.loads(run_shoal("models", "recommend", "--output", "multivector", "--json").stdout)
    sizes = [row["memory_bytes"] for row in rows if row["memory_bytes"] is not None]
    assert sizes == sorted(sizes)
    assert all(row["is_recommended"] and row["reasons"][0]["asked"] == "output" for row in rows)
    assert all("multivector" in row["model"]["outputs"] for row in rows)


@pytest.mark.parametrize("size", ["2XB", "", "-1GB", "two"])
def test_a_size_that_is_none_is_refused(run_shoal, size: str):
    done = run_shoal("models", "recommend", "--max-memory", size)
    assert done.exit_code == 2
    assert "write it like 2GB" in done.stderr


def test_sizes_may_be_written_in_several_ways(run_shoal):
    answers = [
        run_shoal("models", "recommend", "--operation", "embed", "--max-memory", size, "--json").stdout
        for size in ("1.5GiB", "1536 MiB", "1610612736", "1536mib")
    ]
    assert len(json.loads(answers[0])) > 10
    assert len(set(answers)) == 1


def test_nothing_fits_is_no_error(run_shoal):
    done = run_shoal("models", "recommend", "--language", "tlh")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("0 of ")


def test_the_catalog_is_listed_whether_a_server_answers_or_not(run_shoal):
    listed = json.loads(run_shoal("models", "list", "--catalog", "--json").stdout)
    assert {model["id"] for model in listed} >= {entry.id for entry in entries()}
    assert {operation for model in listed for operation in model["operations"]} == {
        "embed",
        "rerank",
        "classify",
        "extract",
    }
