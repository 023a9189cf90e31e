"""Tables on a terminal that is narrower than they are."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

_PRINT = """
from shoal.bench.report import Page, Table
from shoal.cli.benching import publish
columns = ("target", "offered req/s", "served req/s", "texts/s", "tokens/s", "p50 ms", "p99 ms", "trials")
row = ("a-server-with-a-name", "1,694,001", "1,688,002", "1,688,003", "26,001,004", "12.5", "1,900,005", "12")
publish(Page("x", [], [], [Table("Highest rate", columns, [row], note="a note")], []), {}, None, None)
"""


def test_no_number_and_no_heading_is_cut() -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": "80", "TERM": "xterm"}
    subprocess.run([sys.executable, "-c", _PRINT], stdout=theirs, env=environment, check=True, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "…" not in shown
    for cell in (
        "offered req/s",
        "tokens/s",
        "1,694,001",
        "1,688,003",
        "26,001,004",
        "1,900,005",
        "a-server-with-a-name",
    ):
        assert cell in shown
