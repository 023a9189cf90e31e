"""Shoal, as `shoal serve` runs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.base import MODEL, Peer, main

__all__ = ["PEERS"]


def _command(made: Path, port: int, root: Path) -> Sequence[str]:
    return [sys.executable, "-m", "shoal.cli.main", "serve", MODEL, "--port", str(port), "--log-level", "error"]


PEERS = (Peer("shoal", "shoal serve, all defaults", "", (), _command),)

if __name__ == "__main__":
    main(*PEERS)
