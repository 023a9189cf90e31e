"""The generator against real servers: every API, stalls, failures; and the command."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from bench.conftest import answering, response
from shoal.bench.asking import check, embed_all, with_model
from shoal.bench.generator import send_load
from shoal.bench.plan import Arrivals, Load
from shoal.bench.targets import KINDS, Target, parse_targets
from shoal.cli.root import cli
from shoal.errors import InternalError, InvalidRequest, NotReady, Unauthorized

TEXTS = ["first text of all", "a second, somewhat longer text", "third"]
PATHS = {"cohere": "/cohere", "voyage": "/voyage/v1", "tei": "/tei/device", "rerank": "/jina/v1", "openai": "/v1",
         "cohere-rerank": "/cohere", "tei-rerank": "/tei/device"}  # fmt: skip


def target(url: str, kind: str) -> Target:
    [parsed] = parse_targets([f"{kind}+{url}{PATHS.get(kind, '')}#device"], {})
    return parsed


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if KINDS[kind].operation == "embed" and kind != "shoal-sparse"]
)
def test_each_api_gives_the_same_vectors(fake_url: str, kind: str) -> None:
    answers = embed_all(target(fake_url, kind), TEXTS, batch_items=2, concurrency=2)
    reference = embed_all(target(fake_url, "shoal"), TEXTS, batch_items=3, concurrency=1)
    np.testing.assert_allclose(answers.vectors, reference.vectors, atol=1e-6)
    assert answers.num_tokens in (reference.num_tokens, 0)
    assert (answers.num_tokens > 0) == (kind != "tei")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].operation == "rerank"])
def test_each_reranking_api_gives_the_same_scores(fake_url: str, kind: str) -> None:
    scores = embed_all(target(fake_url, kind), ["query", *TEXTS], batch_items=4, concurrency=1).vectors
    reference = embed_all(target(fake_url, "shoal-rerank"), ["query", *TEXTS], batch_items=4, concurrency=1).vectors
    assert scores.shape == (3, 1)
    np.testing.assert_allclose(scores, reference, atol=1e-5)


def test_targets_are_written_in_short() -> None:
    ours, theirs = parse_targets(
        ["http://one:80/v1/embeddings", "theirs=voyage+https://two/v1#some/model@x"], {"theirs": "secret"}
    )
    assert (ours.name, ours.kind, ours.model) == ("openai", "openai", "")
    assert b"POST /v1/embeddings HTTP/1.1\r\nhost: one\r\n" in ours.request(["a"])
    request = theirs.request(["a"])
    assert b"POST /v1/embeddings HTTP/1.1\r\nhost: two\r\n" in request
    assert b"authorization: Bearer secret\r\n" in request
    assert json.loads(request.partition(b"\r\n\r\n")[2]) == {"input": ["a"], "model": "some/model@x"}


@pytest.mark.parametrize("written", ["ftp://x", "soap+http://x", "http://"])
def test_what_is_no_target_is_named(written: str) -> None:
    with pytest.raises(InvalidRequest, match=r"is no|no API"):
        parse_targets([written], {})[0].request(["a"])


def test_the_only_model_is_found_and_several_are_named(fake_url: str) -> None:
    with pytest.raises(InvalidRequest, match="device"):
        with_model(Target("t", "openai", f"{fake_url}/v1"))
    with answering(response(b'{"data": [{"id": "only"}]}')) as url:
        assert with_model(Target("t", "openai", f"{url}/v1")).model == "only"


def test_answers_that_are_none_are_refused() -> None:
    for answer in (response(b'{"data": []}'), response(b"<html>"), response(b"{}", "500 Oops")):
        with answering(answer) as url, pytest.raises(InternalError, match="answers"):
            check(Target("t", "openai", f"{url}/v1", "m"), ["a"])
    with pytest.raises(NotReady, match="Nobody answers"):
        check(Target("t", "openai", "http://127.0.0.1:9/v1", "m"), ["a"])


def load(url: str, arrivals: Arrivals, **fields: float) -> Load:
    values = {"duration_s": 0.5, "max_connections": 64, **fields}
    return Load(Target("t", "tei", url), arrivals, [["a", "b"]], **values)  # type: ignore[arg-type]


def test_an_open_loop_charges_a_slow_server_from_the_intended_time() -> None:
    with answering(response(), after_s=0.05) as url:
        open_loop = send_load(load(url, Arrivals("trace", trace=(0.0,) * 20), max_connections=1))
        closed = send_load(load(url, Arrivals("closed", concurrency=1)))
    # Twenty meant for the same moment, one at a time: the last waits for all others.
    assert open_loop.num_ok == 20
    assert open_loop.latency.longest_s >= 20 * 0.05
    assert open_loop.latency.percentile_s(50) >= 9 * 0.05
    assert open_loop.num_waits == 19
    assert "connection" in open_loop.doubts()[-1]
    assert closed.latency.percentile_s(50) < open_loop.latency.percentile_s(50)
    assert closed.num_items == 2 * closed.num_ok > 0


def test_failures_are_counted_by_reason_and_as_slower_than_everything() -> None:
    trace = Arrivals("trace", trace=(0.0, 0.01))
    with answering(response(status="429 Slow down")) as url:
        refused = send_load(load(url, trace))
    with answering(response(), after_s=5.0) as url:
        late = send_load(load(url, trace, timeout_s=0.2))
    nobody = send_load(load("http://127.0.0.1:9", trace))
    assert refused.errors == {"HTTP 429": 2}
    assert late.errors == {"no reply within 0.2 s": 2}
    assert [reason.partition(":")[0] for reason in nobody.errors] == ["ConnectionRefusedError"]
    for measured in (refused, late, nobody):
        assert (measured.num_ok, measured.num_failed) == (0, 2)
        assert measured.percentile_ms(50) == math.inf


def test_a_server_that_closes_each_connection_is_measured_all_the_same() -> None:
    closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n[]"
    with answering(closing) as url:
        assert send_load(load(url, Arrivals("trace", trace=(0.0, 0.05, 0.1)))).num_ok == 3


@pytest.fixture
def shoal_bench() -> Callable[..., Result]:
    return lambda *arguments: CliRunner().invoke(cli, ["bench", *arguments])


def test_the_command_measures_two_targets_and_writes_a_report(
    fake_url: str, tmp_path: Path, shoal_bench: Callable[..., Result]
) -> None:
    text = tmp_path / "my.txt"
    text.write_text("\n".join(f"line number {number}" for number in range(10)))
    figures, page = tmp_path / "figures.json", tmp_path / "report.html"
    result = shoal_bench(
        *("--rate", "60", "--duration-s", "0.3", "--rounds", "2", "--warm-up-s", "0.1", "--items", "2"),
        *("--text", str(text), "--json", str(figures), "--html", str(page), "--processes", "2", "--model", "device"),
        *(f"ours=shoal+{fake_url}", f"tei+{fake_url}/tei/device"),
    )
    assert result.exit_code in (0, 1), result.output  # 1: this machine is too busy to keep time
    assert "ours" in result.output
    rows = json.loads(figures.read_text())["targets"]
    assert set(rows) == {"ours", "tei"}
    for row in rows.values():
        assert row["requests"] > 0 == row["failed"]
        assert row["latency_ms"]["p50"] > 0
        assert row["items_per_s"]["median"] == pytest.approx(2 * row["requests_per_s"]["median"], rel=0.01)
    html = page.read_text()
    assert "Open loop" in html
    assert "<script" not in html
    assert html.count("http://www.w3.org/2000/svg") == 2
    ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])  # noqa: S314


def test_the_command_finds_a_rate(fake_url: str, tmp_path: Path, shoal_bench: Callable[..., Result]) -> None:
    figures = tmp_path / "figures.json"
    result = shoal_bench(
        *("--find-rate", "--p99-ms", "100", "--duration-s", "0.2", "--json", str(figures)),
        *(f"openai+{fake_url}/v1#device",),
    )
    assert result.exit_code == 0, result.output
    found = json.loads(figures.read_text())["targets"]["openai"]
    good = [trial["rate"] for trial in found["trials"] if trial["is_good"]]
    assert found["highest_rate"] == pytest.approx(max(good, default=0), abs=0.01)


def test_the_search_for_a_rate_starts_where_it_is_told(
    fake_url: str, tmp_path: Path, shoal_bench: Callable[..., Result]
) -> None:
    figures = tmp_path / "figures.json"
    limits = ("--p99-ms", "0.001", "--duration-s", "0.2", "--json", str(figures))
    shoal_bench("--find-rate", "--rate", "0.2", *limits, f"openai+{fake_url}/v1#device")
    trials = json.loads(figures.read_text())["targets"]["openai"]["trials"]
    assert [trial["rate"] for trial in trials] == [0.2, 0.1]


def test_a_closed_loop_says_so(fake_url: str, shoal_bench: Callable[..., Result]) -> None:
    result = shoal_bench("--duration-s", "0.2", "--rounds", "1", "--warm-up-s", "0", f"shoal+{fake_url}#device")
    assert "CLOSED LOOP" in result.output


def test_a_server_that_wants_a_key_is_told_of_as_such() -> None:
    with answering(response(b'{"error": "no such key"}', "401 Unauthorized")) as url:
        expected = "answers 401: .*no such key.* --key openai=VARIABLE"
        with pytest.raises(Unauthorized, match=expected):
            with_model(parse_targets([url], {})[0])
        with pytest.raises(Unauthorized, match=expected):
            check(parse_targets([f"{url}#device"], {})[0], TEXTS)


def test_wrong_arguments_are_named(
    fake_url: str, shoal_bench: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    assert "NO_SUCH_KEY is not set" in shoal_bench("--key", "openai=NO_SUCH_KEY", fake_url).output
    assert "exclude" in shoal_bench("--rate", "1", "--trace", __file__, f"{fake_url}#device").output
    bursts = shoal_bench("--find-rate", "--rate", "1", "--burst", "4", f"{fake_url}#device").output
    assert "neither --trace nor --burst" in bursts
    unknown = shoal_bench(f"{fake_url}#nothing")
    assert unknown.exit_code == 1
    assert "nothing" in unknown.output


def test_sparse_vectors_are_told_by_their_sums(fake_url: str) -> None:
    sums = embed_all(target(fake_url, "shoal-sparse"), TEXTS, batch_items=2, concurrency=2).vectors
    assert sums.shape == (len(TEXTS), 1)
    assert (sums > 0).all()
