"""Servers that fail, and loads that send nothing: what is said, and that it is no success."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.conftest import answering, response
from shoal.bench.generator import send_load
from shoal.bench.measure import Trial
from shoal.bench.plan import Arrivals, Load, Measured
from shoal.bench.summary import rate_page, trial_line
from shoal.bench.targets import Target
from shoal.cli.root import cli

BRIEF = ("--duration-s", "0.2", "--rounds", "1", "--warm-up-s", "0")


def shoal_bench(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["bench", *arguments])


def measured(url: str, num_requests: int = 2) -> Measured:
    trace = Arrivals("trace", trace=(0.0,) * num_requests)
    return send_load(Load(Target("t", "tei", url), trace, [["a"]], 0.2, timeout_s=10.0))


def test_a_trial_names_what_failed_and_why() -> None:
    nobody = measured("http://127.0.0.1:9")
    assert nobody.failures.startswith("2 of 2 requests failed: ConnectionRefusedError")
    assert nobody.doubts() == []
    line = trial_line("t", Trial(1433.2, False, nobody, []))
    assert line.startswith("t: 1,433.2 requests/s: 2 of 2 requests failed: ConnectionRefusedError")
    assert line.endswith(", too much")
    assert "inf" not in line


def test_a_search_that_ends_with_a_dead_server_is_invalid() -> None:
    with answering(response()) as url:
        good = Trial(10.0, True, measured(url), [])
    dead = Trial(20.0, False, measured("http://127.0.0.1:9"), [])
    page = rate_page({"t": [good, dead, dead]}, 50.0, 99.0, [])
    assert page.warnings[0].startswith("INVALID for t: in the last 2 trials nothing was answered: 2 of 2 requests")
    assert not [warning for warning in rate_page({"t": [dead, good]}, 50.0, 99.0, []).warnings if "INVALID" in warning]


def test_the_command_says_that_the_server_died_in_the_search() -> None:
    with answering(response(b"[[1.0]]"), num_requests=1) as url:  # it lives for the look at the first reply
        result = shoal_bench("--find-rate", "--rate", "100", "--duration-s", "0.1", f"tei+{url}")
    assert result.exit_code == 1
    assert "ConnectionResetError" in result.output
    assert "INVALID for tei: in the last" in result.output


def test_the_command_fails_where_nothing_was_answered(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    with answering(response(b"[[1.0]]"), num_requests=1) as url:
        result = shoal_bench(*BRIEF, "--concurrency", "2", "--json", str(figures), f"tei+{url}")
    assert result.exit_code == 1
    assert "requests failed: ConnectionResetError" in result.output
    assert "of a core" not in result.output
    assert json.loads(figures.read_text())["targets"]["tei"]["requests"] == 0


@pytest.mark.parametrize("arguments", [(), ("--find-rate",)])
def test_a_load_that_sends_nothing_says_so(arguments: tuple[str, ...]) -> None:
    with answering(response(b"[[1.0]]")) as url:
        result = shoal_bench(*BRIEF, "--rate", "1e-9", *arguments, f"tei+{url}")
    assert result.exit_code == 1
    if not arguments:
        assert "INVALID for tei: no request was sent in 0.2 s." in result.output
    assert "of a core" not in result.output


def test_a_rate_that_held_with_doubts_is_not_called_too_much() -> None:
    with answering(response()) as url:
        found = measured(url)
    doubtful = Trial(2882.0, True, found, ["the generator used 95% of a core; give it more --processes"])
    line = trial_line("t", doubtful)
    assert "unclear: the generator used 95% of a core" in line
    assert "too much" not in line
    page = rate_page({"t": [Trial(10.0, True, found, []), doubtful]}, 2000.0, 99.0, [])
    assert "2,882.0 requests/s held the limit, but does not count: the generator" in page.warnings[0]
    [table] = page.tables
    shown = dict(zip(table.columns, table.rows[0], strict=True))
    assert shown["offered req/s"] == "10"
    assert float(shown["served req/s"].replace(",", "")) == pytest.approx(found.requests_per_s, rel=0.05)


def test_what_doubts_advise_exists() -> None:
    assert "--processes" in shoal_bench("run", "--help").output
    assert "--processes" in shoal_bench("compare", "--help").output


def test_an_error_in_messagepack_is_told_in_words(fake_url: str) -> None:
    result = shoal_bench(*BRIEF, f"shoal+{fake_url}#nothing")
    assert result.exit_code == 1
    assert re.search(r"answers 404: [a-z_]+: .*nothing", result.output), result.output
    assert "request_id" not in result.output


def test_who_ranks_and_who_embeds_are_asked_for_as_many_items(fake_url: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    targets = (f"shoal-rerank+{fake_url}#device", f"shoal+{fake_url}#device")
    shoal_bench(*BRIEF, "--items", "2", "--json", str(figures), *targets)
    for row in json.loads(figures.read_text())["targets"].values():
        assert row["items_per_s"]["median"] == pytest.approx(2 * row["requests_per_s"]["median"], rel=0.01)
