"""docs/performance.md is made of results alone, and says by itself where Shoal is behind."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from benchmarks import machine, page


def peer_row(rate: float, p50: float | None, failed: int = 0) -> dict[str, Any]:
    spread = {"median": rate, "least": rate, "most": rate}
    latency = {"p50": p50, "p90": p50, "p99": p50, "p99.9": p50}
    return {"requests_per_s": spread, "items_per_s": spread, "latency_ms": latency, "failed": failed}


PEERS = {
    "rounds": 5, "stretch_s": 4.0, "absent": {"vllm": "needs CUDA"},
    "peers": {name: {"note": f"what {name} is"} for name in ("shoal", "infinity")},
    "idle_cpu_share": {"shoal": 0.0, "infinity": 0.01},
    "fidelity": {"shoal": {"worst": 0.9999, "mean": 1.0}},
    "library_texts_per_s": {"sentence-transformers": {"16 tokens": 200.0, "128 tokens": 60.0}},
    "machine": {"commit": "abc"},
    "left_out": {"128 tokens, 64 texts, closed 2": {"slow": "one request takes 40 s"}},
    "measured_at": {
        "128 tokens, 64 texts, closed 2": {
            "commit": "def", "matrix_rate_gflops": {"float32": 200.0}, "gflop_per_text": 2.0,
        },
    },
    "loads": {
        "lone request": {"shoal": peer_row(100, 8.0), "infinity": peer_row(120, 5.0)},
        "16 tokens, closed 32": {"shoal": peer_row(400, 80.0), "infinity": peer_row(100, None, failed=3)},
        "128 tokens, 64 texts, closed 2": {"shoal": peer_row(50, 80.0), "infinity": peer_row(40, 90.0)},
    },
}  # fmt: skip
SHARES = {"busy_share": 0.5, "batch_fill": 0.4, "cpu_share_of_machine": 0.3}
DISPATCH = {
    "workers": 8, "a_ms": 100.0, "c_us": 500.0, "request_tokens": 24, "machine": {"command": "new", "commit": "abc"},
    "cells": [{
        "command": "older", "commit": "012",
        "models": "16z", "objective_over_a": 20.0,
        "systems": {
            "shoal": {"goodput": 300.0, "at_goodput": SHARES},
            "plain bounded_hash": {"goodput": 350.0, "at_goodput": SHARES},
            "vllm-router round_robin": {"goodput": 0.0, "at_goodput": {}},
        },
        "screening": {"rate": 260.0, "share_within": {"vllm-router random": 0.2, "vllm-router round_robin": 0.751}},
    }],
}  # fmt: skip
SCALE = {"rows": [{"workers": 1000, "models": 1000, "objective_over_a": 20, "shares": {"pull": 0.8, "random": 0.2}}]}
SCALING = {
    "items": [{"items": 1, "gateway": 170.0, "worker": 260.0}, {"items": 64, "gateway": 296.0, "worker": 890.0}],
    "models": [{"models": 1, "gateway": 170.0, "worker": 260.0}, {"models": 1000, "gateway": 175.0, "worker": 520.0},
               {"models": 10_000, "error": "not ready"}],
    "depth": [{"depth": 0, "jetstream_puller_cpu_us": 30.0}, {"depth": 100_000, "jetstream_puller_cpu_us": 31.0}],
}  # fmt: skip


def made(tmp_path: Path, **results: Any) -> dict[str, str]:
    directory = tmp_path / "benchmarks" / "results"
    directory.mkdir(parents=True)
    for name, result in results.items():
        (directory / f"{name.replace('_', '-')}.json").write_text(json.dumps(result))
    return page.pages(tmp_path, "HEAD\n")


def test_every_section_has_its_figures_and_plots(tmp_path: Path) -> None:
    pages = made(tmp_path, peers=PEERS, dispatch=DISPATCH, dispatch_scale=SCALE, scaling=SCALING, other={"x": 1})
    text = pages.pop("docs/performance.md")
    rows = ("| 1,000 | 1,000 | 20 a | 80% | 20% |", "| 64 | 296 | 890 |", "| failed | failed | 3 |", "| 0 | 50% |",
            "| 16 tokens, closed 32 | 400 | infinity | 4.00 | 4.00 |", "slow, one request takes 40 s",
            "at commit def")  # fmt: skip
    others = (
        "needs CUDA",
        "what infinity is",
        "K = 16z, L = 20 a",
        "Measured by `older` at commit 012.",
        "round_robin 75.1%, vllm-router random 20.0%",
        "[other](../benchmarks/results/other.json)",
    )
    screened = "chosen: vllm-router round_robin 75.1%, vllm-router random 20.0%."
    for expected in (*rows, *others, screened):
        assert expected in text
    assert pages
    for name, svg in pages.items():
        ElementTree.fromstring(svg)  # noqa: S314
        assert f"](performance/{Path(name).name})" in text


def test_a_line_that_grows_is_told_from_a_flat_one_and_explained(tmp_path: Path) -> None:
    text = made(tmp_path, scaling=SCALING)["docs/performance.md"]
    assert "Each text more costs: gateway 2.0 µs, worker 10.0 µs." in text
    assert "From 1 to 1,000: flat (within 1.25 x): gateway. Grows: worker 2.00 x. Requests for the same model" in text
    assert "From 0 to 100,000: flat (within 1.25 x): jetstream puller.\n" in text
    assert "- Scaling: not ready." in text


def test_where_shoal_is_behind_is_said(tmp_path: Path) -> None:
    text = made(tmp_path, peers=PEERS, dispatch=DISPATCH)["docs/performance.md"]
    losses = text[text.index("## Where Shoal loses") : text.index("## Beside")]
    assert "lone request: infinity has a lower p50, 5 ms beside 8 ms." in losses
    assert "lone request: infinity has more, 120 texts/s beside 100 texts/s." in losses
    assert "plain bounded_hash does 350 requests/s within L, pull 300." in losses
    assert "128 tokens: sentence-transformers as a library does 60 texts/s, Shoal over HTTP 50." in losses
    assert "16 tokens, closed 32" not in losses
    nothing = page.pages(tmp_path / "none", "HEAD\n")["docs/performance.md"]
    assert "Nowhere" in nothing


def test_the_command_of_a_result_can_be_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    root = machine.ROOT / "benchmarks"
    for path, module in (
        (root / "peers" / "__main__.py", "benchmarks.peers"),
        (root / "latency.py", "benchmarks.latency"),
    ):
        monkeypatch.setattr(sys, "argv", [str(path), "--quick"])
        assert machine.describe()["command"] == f"python -m {module} --quick"
