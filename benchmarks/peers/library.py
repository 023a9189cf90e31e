"""sentence-transformers as a library: what `encode` does in a process of its own, without any server."""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path

from benchmarks import environments
from benchmarks.peers import sentence_transformers
from benchmarks.peers.base import SERVING, Peer
from benchmarks.peers.loads import MIXES, texts_of

__all__ = ["rates"]

NUM_TEXTS = 64


def rates(root: Path, num_rounds: int) -> dict[str, dict[str, float]]:
    """Texts a second by back end and mix, one back end after the other, alone on the machine."""
    return {peer.name: _rates_of(peer, root, num_rounds) for peer in sentence_transformers.PEERS}


def _rates_of(peer: Peer, root: Path, num_rounds: int) -> dict[str, float]:
    backend = peer.environment.removeprefix("st-")
    made = environments.environment(peer.environment, peer.steps, root)
    where = sentence_transformers.directory(backend, root)
    command = [str(made / "bin" / "python"), "-P", str(SERVING), backend, where, "--library"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        found = {}
        for mix in MIXES:
            times_s = [_encode_s(process, texts_of(mix, 7 + number, NUM_TEXTS)) for number in range(num_rounds + 1)]
            found[mix] = round(NUM_TEXTS / statistics.median(times_s[1:]), 1)
        process.communicate()
    return found


def _encode_s(process: subprocess.Popen[str], texts: list[str]) -> float:
    assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018
    process.stdin.write(json.dumps({"texts": texts}) + "\n")
    process.stdin.flush()
    return float(json.loads(process.stdout.readline())["seconds"])
