"""fastembed on local files (ONNX Runtime), behind a minimal HTTP server of ours: it ships none.

It wants the model as ONNX, which sentence-transformers exports once.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers import sentence_transformers
from benchmarks.peers.base import SERVING, UVICORN, Peer, main

__all__ = ["PEERS"]


def _laid_out(root: Path) -> Path:
    """A directory as fastembed's own downloads are; texts are cut where sentence-transformers cuts them."""
    directory = root / "models" / "fastembed"
    if not (directory / "model.onnx").exists():
        saved = Path(sentence_transformers.directory("onnx", root))
        shutil.copytree(saved, directory, dirs_exist_ok=True)
        settings = json.loads((saved / "tokenizer_config.json").read_text())
        longest = json.loads((saved / "sentence_bert_config.json").read_text())["max_seq_length"]
        changed = settings | {"max_length": longest, "model_max_length": longest}
        (directory / "tokenizer_config.json").write_text(json.dumps(changed))
        shutil.copy(saved / "onnx" / "model.onnx", directory / "model.onnx")
    return directory


def _command(made: Path, port: int, root: Path) -> Sequence[str]:
    return [str(made / "bin" / "python"), "-P", str(SERVING), "fastembed", str(_laid_out(root)), str(port)]


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
