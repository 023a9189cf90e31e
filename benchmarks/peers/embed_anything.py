"""Candle by way of embed-anything's wheel, behind a minimal HTTP server of ours: it ships none.

It asks the hub for its models; a cache laid out as the hub lays it out answers instead.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.base import MODEL, SERVING, UVICORN, Peer, main, model_directory

__all__ = ["PEERS"]

_REVISION = "0" * 40


def _cache(root: Path) -> Path:
    """A hub cache that holds the demo model."""
    home = root / "models" / "hub-home"
    folder = home / "hub" / f"models--{MODEL.replace('/', '--')}"
    if not (folder / "refs" / "main").exists():
        shutil.copytree(model_directory(), folder / "snapshots" / _REVISION, dirs_exist_ok=True)
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(_REVISION)
    return home


def _command(made: Path, port: int, root: Path) -> Sequence[str]:
    home = f"HF_HOME={_cache(root)}"
    return ["env", home, str(made / "bin" / "python"), "-P", str(SERVING), "embed-anything", "-", str(port)]


PEERS = (
    Peer(
        "embed-anything (Candle)",
        "Candle, float32, texts are cut at 512 tokens instead of 256; a minimal HTTP server of ours in front, no "
        "batching across requests",
        "embed-anything",
        (("embed-anything==0.7.1", "numpy", *UVICORN),),
        _command,
    ),
)

if __name__ == "__main__":
    main(*PEERS)
