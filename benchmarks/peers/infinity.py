"""infinity-emb with its own server, which batches across requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.base import MODEL, Peer, main, model_directory

__all__ = ["PEERS"]

STEPS = (("torch==2.13.0",), ("infinity-emb[server,torch]==0.0.78", "transformers<5"))


def _command(made: Path, port: int, root: Path) -> Sequence[str]:
    where = ["--host", "127.0.0.1", "--port", str(port), "--url-prefix", "/v1"]
    what = ["--model-id", model_directory(), "--served-model-name", MODEL, "--engine", "torch", "--device", "cpu"]
    rest = ["--no-bettertransformer", "--no-model-warmup", "--log-level", "error"]
    quiet = ["env", "INFINITY_ANONYMOUS_USAGE_STATS=0", "DO_NOT_TRACK=1"]
    return [*quiet, str(made / "bin" / "infinity_emb"), "v2", *where, *what, *rest]


PEERS = (Peer("infinity", "its own server, torch engine, float32", "infinity", STEPS, _command, path="/v1"),)

if __name__ == "__main__":
    main(*PEERS)
