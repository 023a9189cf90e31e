"""scripts/gpu runs from end to end on a CPU, without Shoal's other dependencies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ABSENT_THERE = ("openvino", "nats", "starlette", "orjson", "uvicorn", "httptools", "prometheus_client", "uvloop")


@pytest.fixture
def bare_environment(tmp_path: Path) -> dict[str, str]:
    """Of a machine that lacks those packages: importing one fails."""
    for name in ABSENT_THERE:
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} is not needed here')\n")
    return dict(os.environ) | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}


def test_the_dry_run_finds_every_family_right_and_writes_its_figures(
    tmp_path: Path, bare_environment: dict[str, str]
) -> None:
    figures = tmp_path / "gpu.json"
    command = [sys.executable, str(ROOT / "scripts" / "gpu"), "--dry-run", "--device", "cpu", "--json", str(figures)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=110, env=bare_environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(figures.read_text())
    assert told["is_dry_run"]
    assert told["reference"].startswith("sentence-transformers 6")
    assert {row["model"] for row in told["parity"]} == {
        "bert",
        "xlm-roberta",
        "mpnet",
        "modernbert",
        "qwen3",
        "mistral",
    }
    assert all(row["is_right"] and row["cosine"] > 0.99999 for row in told["parity"])
    assert {row["head"] for row in told["heads"]} == {"dense", "logits", "sparse", "tags.logits", "multivector.rows"}
    assert all(row["is_right"] for row in told["heads"])
    packed = {row["model"] for row in told["parity"] if row["layout"] == "packed"}
    assert packed == {"bert", "xlm-roberta", "modernbert", "qwen3", "mistral"}
    assert [row["tokens"] for row in told["speed"]] == ["8", "4-64"]
    for row in told["speed"]:
        assert row["shoal_tokens_per_s"] > 0
        assert row["ratio"] > 0
        assert row["mfu"] > 0
        assert row["shoal_p50_ms"] > 0
        assert row["graph_p50_ms"] is None
    assert "ratio" in done.stdout


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    code = (
        "import runpy, sys; sys.modules['msgspec'] = None; sys.argv = ['gpu']; "
        f"runpy.run_path({str(ROOT / 'scripts' / 'gpu')!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "Missing here: msgspec" in done.stderr
