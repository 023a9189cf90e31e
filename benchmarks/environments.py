"""Virtual environments of software that is measured beside Shoal, each made once, outside of the repository."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from shoal.settings import state_directory

__all__ = ["ROOT", "environment"]

ROOT = state_directory() / "benchmarks"


def environment(name: str, steps: Sequence[Sequence[str]], root: Path = ROOT) -> Path:
    """The directory of an environment; made anew if what it asks for has changed.

    Args:
        steps: requirements of each call of pip, in order. torch comes first and pinned, so that nothing draws a build
            for a device that is not here.

    Raises:
        subprocess.CalledProcessError: pip failed; its output says why.
    """
    path = root / name
    wanted = hashlib.sha256(repr([list(step) for step in steps]).encode()).hexdigest()
    mark = path / "made-of"
    if mark.exists() and mark.read_text() == wanted:
        return path
    print(f"making the environment {path} ...", file=sys.stderr, flush=True)
    root.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", path], check=True)
    for step in steps:
        pip = [str(path / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *step]
        subprocess.run(pip, check=True, stdout=sys.stderr)
    mark.write_text(wanted)
    return path
