"""What the command prints of trials, and a task of the user's own."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
import pytest

from shoal.bench.neighbours import Collection
from shoal.bench.report import to_html
from shoal.cli.tune import _shown
from shoal.cli.tuning_arguments import task_of
from shoal.cli.tuning_lines import budget_line, lines_of, resuming_lines
from shoal.runtimes.knobs import Knob
from shoal.tuner.duration import least_s
from shoal.tuner.ledger import Entry, Status
from shoal.tuner.objectives import HighestRate, LowestLatency
from shoal.tuner.report import frontier_plot, page_of
from shoal.tuner.space import Space
from shoal.tuner.task import Retrieval, shortened

LONG = {"latency_objective_ms": 100.0, "precision": "int8_weights", "run_tokens": 1024, "threads": 1}
ENTRIES = [
    Entry("fit", {}, "measured", figures={"predicted": 65.69, "a_ms": 1.79, "c_us": 263.0}, seconds=6.0),
    Entry("fit", LONG, "discard", reason="p1 cosine to float32 is 0.98000, below 0.99; " * 3, seconds=6.0),
    Entry("rung 1", {}, "measured", 1, {"default": 62.8, " ".join(LONG): 15.1}, {"default": [(62.8, 49.0)]}),
    Entry("final threads=1", {"threads": 1}, "measured", 7, {"default": 62.8, "threads=1": 64.0}, {"default": []}),
    Entry("verdict", {"threads": 1}, "discard", figures={"ratio": 1.0}, reason="1.000 times what stood before"),
]


def test_lines_fit_eighty_columns_and_say_all() -> None:
    lines = [line for entry in ENTRIES for line in lines_of(entry)]
    assert max(map(len, lines)) < 80
    assert lines[0].split() == "fit default 65.69 predicted, a 1.79 ms, c 263 us".split()
    told = " ".join(" ".join(lines).split())
    for words in ("run_tokens=1024 threads=1", "discard: p1 cosine", "rung 1 default 62.8", "threads=1 64"):
        assert words in told


METRICS = {"predicted": 70.0, "metric": 0.70123, "float32_metric": 0.71}


@pytest.mark.parametrize("status", ["measured", "discard"])
def test_a_task_s_metric_is_shown_beside_that_of_float32(status: Status) -> None:
    fits = [ENTRIES[0], Entry("fit", {"precision": "int8"}, status, figures=METRICS)]
    words = "0.7012 (float32: 0.7100)"
    assert words in " ".join(" ".join(lines_of(fits[1])).split())
    assert words not in " ".join(lines_of(fits[0]))
    page = page_of("Tuning toy", fits, [], "requests/s")
    assert to_html(page).count(words) == 1


def test_how_long_it_takes_at_least_is_told_before_it_begins() -> None:
    space = Space((Knob("threads", (1, 2), ""), Knob("layout", ("padded",), "")))
    latency = least_s(space, LowestLatency(10.0, 1.0))
    assert latency == pytest.approx(4 * 3.1 + (4 + 8) * 2)
    assert least_s(space, HighestRate(50.0, 1.0)) == pytest.approx(4 * 3.1 + (4 + 8) * 13)
    assert least_s(space, LowestLatency(10.0, 3.0)) == pytest.approx(3 * latency)
    assert least_s(space, LowestLatency(10.0, 1.0), 1) == pytest.approx(latency + 3.1 + 16 * 2)
    assert budget_line(600, 66) == (
        "The budget is 10 minutes: at least about 1.1 minutes of load are run, and servers start besides."
    )
    assert budget_line(6, 66).startswith("This takes longer than the budget of 0.1 minutes: at least about 1.1")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_is_full_in_the_end_in_sixteen_colours_too(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "100"), ("COLORTERM", "")):
        monkeypatch.setenv(name, value)
    with _shown("toy", 5.0) as on_entry:
        on_entry(ENTRIES[0], True)
    last = terminal.getvalue().rpartition("tuning toy")[2]
    grey = "\x1b[90m"
    assert "100 %" in last
    assert "\u2501" in last
    assert grey not in last


def test_points_of_equal_loads_are_not_joined() -> None:
    race = Entry("rung 1", {}, "measured", 1, {"default": 1.0}, {"default": [(1.0, 9.0), (1.0, 2.0), (2.0, 5.0)]})
    plot = frontier_plot([race])
    assert plot.count("<circle") == 3
    assert "<polyline" not in plot


def test_a_resumed_run_says_what_it_does_not_do_again() -> None:
    (line,) = resuming_lines(ENTRIES[:3])
    assert line == "Going on: 3 finished trials of 0.2 minutes are in the ledger (2 fit, 1 rung 1)."


COLLECTION = Collection(
    [f"document {number}" for number in range(40)],
    ["first", "second", "third"],
    {0: {39: 1.0}, 1: {5: 2.0, 7: 1.0}, 2: dict.fromkeys(range(30), 1.0)},
)


class Server:
    """Finds the documents of the first query, and nothing for the others."""

    def vectors(self, texts: Sequence[str], input_type: str) -> npt.NDArray[np.float32]:
        rows = np.zeros((len(texts), 3), np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[0 if text in ("document 39", "first") else 1 if input_type == "document" else 2] = 1
        return rows


def test_a_long_collection_is_shortened_to_whole_queries() -> None:
    short = shortened(COLLECTION, 20)
    assert len(short.documents) == 20
    assert short.queries == ["first", "second"]
    told = {
        query: {short.documents[place]: gain for place, gain in short.gains[number].items()}
        for number, query in enumerate(short.queries)
    }
    assert told == {"first": {"document 39": 1.0}, "second": {"document 5": 2.0, "document 7": 1.0}}
    assert shortened(COLLECTION, 40) is COLLECTION


def test_a_task_is_the_mean_over_its_queries() -> None:
    only_first = Collection(COLLECTION.documents, ["first"], {0: {39: 1.0}})
    server: object = Server()
    assert Retrieval(only_first)(server) == pytest.approx(1.0)  # type: ignore[arg-type]
    assert Retrieval(COLLECTION)(server) < 1.0  # type: ignore[arg-type]


def test_a_task_is_read_from_three_files_or_none(tmp_path: Path) -> None:
    (documents := tmp_path / "documents.jsonl").write_text('{"_id": "d", "text": "document 39"}\n')
    (queries := tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "first"}\n')
    (qrels := tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    task = task_of(documents, queries, qrels, 100)
    assert task is not None
    assert task(Server()) == pytest.approx(1.0)  # type: ignore[arg-type]
    assert task_of(None, None, None, 100) is None
    with pytest.raises(click.UsageError, match="go together"):
        task_of(documents, queries, None, 100)
