"""Two servers side by side: the pure parts against known values, and the command against two models that differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from sklearn.metrics import ndcg_score

from e2e.running import MODEL, serving
from shoal.bench import prices
from shoal.bench.neighbours import ndcg, overlap, read_collection, top_k
from shoal.cli.root import cli
from shoal.errors import InvalidRequest


def test_neighbours_by_cosine_leave_out_the_text_itself() -> None:
    vectors = np.array([[1, 0], [2, 0.2], [0, 3], [0.1, 1]], np.float32)
    assert top_k(vectors, vectors, 1, is_self=True)[:, 0].tolist() == [1, 0, 3, 2]
    assert top_k(vectors, vectors, 1)[:, 0].tolist() == [0, 1, 2, 3]
    assert top_k(vectors[:1], vectors, 3).tolist() == [[0, 1, 3]]


def test_many_queries_are_ranked_as_one_by_one() -> None:
    vectors = np.random.default_rng(0).normal(size=(1100, 8)).astype(np.float32)
    whole = top_k(vectors, vectors, 5, is_self=True)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for place in (0, 511, 512, 1099):
        order = [other for other in np.argsort(-(unit @ unit[place])) if other != place]
        assert whole[place].tolist() == order[:5]


def test_overlap_is_the_share_of_neighbours_in_common() -> None:
    assert overlap(np.array([[1, 2], [3, 4]]), np.array([[2, 1], [3, 9]])) == 0.75


def test_ndcg_is_that_of_scikit_learn() -> None:
    chooser = np.random.default_rng(1)
    documents, queries = chooser.normal(size=(2, 40, 6)).astype(np.float32)
    gains = {query: {int(place): float(gain) for place, gain in zip(chooser.choice(40, 15, replace=False), range(1, 16),
             strict=True)} for query in range(40)}  # fmt: skip
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, documents)]
    truth = np.array([[gains[query].get(place, 0) for place in range(40)] for query in range(40)])
    assert ndcg(top_k(queries, documents, 10), gains) == pytest.approx(ndcg_score(truth, unit[0] @ unit[1].T, k=10))


def test_every_price_has_a_date_and_a_source() -> None:
    rows = yaml.safe_load(Path(prices.__file__).with_name("prices.yaml").read_text())["models"]
    assert len({row["model"] for row in rows}) == len(rows)
    for row in rows:
        assert 0.001 < row["usd"] < 10
        assert str(row["seen"]).startswith("20")
        assert "https://" in row["source"]
    found = prices.price_of("openai/text-embedding-3-small")
    assert found is not None
    assert found.usd == 0.02
    assert prices.price_of("my-own") is None
    assert prices.machine_usd_per_million(0.36, 100) == pytest.approx(1.0)


def test_qrels_must_be_about_the_texts(tmp_path: Path) -> None:
    qrels = tmp_path / "qrels.tsv"
    qrels.write_text("query-id\tcorpus-id\tscore\nq1\td2\t2\nq1\td9\t1\nq1\td1\t0\n")
    collection = read_collection([("d1", "one"), ("d2", "two")], [("q0", "a"), ("q1", "b")], qrels)
    assert collection.gains == {1: {1: 2.0}}
    assert collection.num_unknown == 1
    with pytest.raises(InvalidRequest, match="none of these"):
        read_collection([("d1", "one")], [("q0", "a")], qrels)
    qrels.write_text("header\nq1 d2 2\n")
    with pytest.raises(InvalidRequest, match="Line 2"):
        read_collection([("d1", "one")], [("q1", "a")], qrels)


@pytest.fixture(scope="module")
def demo_url() -> Iterator[str]:
    with serving(MODEL) as (_, url):
        yield url


def test_the_command_compares_two_servers(fake_url: str, demo_url: str, tmp_path: Path) -> None:
    subjects = [
        ("cat", "a cat sleeps on the sofa"),
        ("tax", "income tax is due in spring"),
        ("jazz", "a saxophone solo"),
    ]
    corpus, queries, qrels = (tmp_path / name for name in ("corpus.jsonl", "queries.jsonl", "qrels.tsv"))
    corpus.write_text("".join(json.dumps({"_id": name, "text": text}) + "\n" for name, text in subjects))
    asked = {"cat": "kitten resting on a couch", "tax": "when do I pay the tax office", "jazz": "jazz music"}
    queries.write_text("".join(json.dumps({"_id": name, "text": text}) + "\n" for name, text in asked.items()))
    qrels.write_text("query-id\tcorpus-id\tscore\n" + "".join(f"{name}\t{name}\t1\n" for name in asked))
    result = CliRunner().invoke(cli, [
        "bench", "compare", f"real=shoal+{demo_url}", f"fake=openai+{fake_url}/v1#device", "--text", str(corpus),
        "--queries", str(queries), "--qrels", str(qrels), "--duration-s", "0.2", "--rounds", "1",
        "--machine-price", "0.36", "--price", "0.5",
        "--json", str(tmp_path / "c.json"), "--html", str(tmp_path / "c.html"),
    ])  # fmt: skip
    assert result.exit_code in (0, 1), result.output  # 1: this machine is too busy to keep time
    found = json.loads((tmp_path / "c.json").read_text())
    real, fake = found["sides"]["real"], found["sides"]["fake"]
    assert real["ndcg_at_10"] == 1.0 > fake["ndcg_at_10"]
    assert (real["dimensions"], fake["dimensions"]) == (384, 8)
    assert real["cost"]["usd_per_million_texts"] == pytest.approx(
        100 / real["throughput"]["items_per_s"]["median"], rel=0.01
    )
    assert fake["cost"]["usd_per_million_tokens"] == 0.5
    assert fake["cost"]["usd_per_million_texts"] == pytest.approx(0.5 * fake["tokens_per_text"], rel=0.01)
    assert 0 <= found["shared_neighbours"] <= 1
    assert (tmp_path / "c.html").read_text().count("<svg") == 2
    assert "nDCG@10" in result.output


def test_a_server_agrees_with_itself(fake_url: str, tmp_path: Path) -> None:
    text = tmp_path / "my.txt"
    text.write_text("\n".join(f"text number {number} of some" for number in range(30)))
    arguments = [f"shoal+{fake_url}#device", f"cohere+{fake_url}/cohere#device", "--text", str(text)]
    result = CliRunner().invoke(
        cli,
        ["bench", "compare", *arguments, "--duration-s", "0.1", "--rounds", "1", "--json", str(tmp_path / "c.json")],
    )
    assert result.exit_code in (0, 1), result.output
    assert json.loads((tmp_path / "c.json").read_text())["shared_neighbours"] == 1.0
