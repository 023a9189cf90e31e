"""Scratch directories: gone with their owner, or with the next one after it was killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from shoal.queue.scratch import Scratch

OWNER = """
import os, signal
from shoal.queue.scratch import Scratch
print(Scratch("shoal-test-").path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_owner_left_is_removed_and_the_rest_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    living = Scratch("shoal-test-")
    for other in ("shoal-test-without-a-lock", "other"):
        (tmp_path / other).mkdir()
    killed = subprocess.run([sys.executable, "-c", OWNER], capture_output=True, text=True, check=False)
    left = Path(killed.stdout.strip())
    assert left.parent == tmp_path
    assert left.exists()
    fresh = Scratch("shoal-test-")
    assert not left.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["other", "shoal-test-without-a-lock", living.path.name, fresh.path.name]
    )
    for one in (living, fresh):
        one.remove()
        assert not one.path.exists()
