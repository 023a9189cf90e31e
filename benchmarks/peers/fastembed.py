"""fastembed on local files (ONNX Runtime), behind a minimal HTTP server of ours: it ships none.

It wants the model as ONNX, which sentence-transformers' onnx environment exports once.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks import environments
from benchmarks.peers import sentence_transformers
from benchmarks.peers.base import SERVING, UVICORN, Peer, main, model_directory, run_in

__all__ = ["PEERS"]

_EXPORT = """
import sys, sentence_transformers
model = sentence_transformers.SentenceTransformer(sys.argv[1], backend="onnx", device="cpu")
model.save_pretrained(sys.argv[2])
"""


def _exported(root: Path) -> Path:
    """A directory laid out as fastembed's own downloads are."""
    directory = root / "models" / "all-MiniLM-L6-v2-onnx"
    if not (directory / "model.onnx").exists():
        onnx = next(peer for peer in sentence_transformers.PEERS if peer.environment == "st-onnx")
        saved = root / "models" / "exported"
        run_in(
            environments.environment(onnx.environment, onnx.steps, root), "-c", _EXPORT, model_directory(), str(saved)
        )
        shutil.copytree(saved, directory, dirs_exist_ok=True)
        shutil.copy(saved / "onnx" / "model.onnx", directory / "model.onnx")
    return directory


def _command(made: Path, port: int, root: Path) -> Sequence[str]:
    return [str(made / "bin" / "python"), "-P", str(SERVING), "fastembed", str(_exported(root)), str(port)]


PEERS = (
    Peer(
        "fastembed",
        "ONNX Runtime, float32; a minimal HTTP server of ours in front, no batching across requests",
        "fastembed",
        (("fastembed==0.9.1", *UVICORN),),
        _command,
    ),
)

if __name__ == "__main__":
    main(*PEERS)
