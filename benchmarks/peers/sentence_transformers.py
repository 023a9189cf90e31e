"""sentence-transformers with each of its back ends, behind a minimal HTTP server of ours: it ships none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import environments
from benchmarks.peers.base import SERVING, UVICORN, Peer, main, model_directory, run_in

__all__ = ["PEERS", "directory"]

# Pinned, because pip's search through the versions that exclude each other takes half an hour: the onnx back end still
# wants transformers 4, and with it an older sentence-transformers.
TORCH = "torch==2.13.0"
INTEL = ("optimum~=2.3.0", "nncf>=3.3", "openvino>=2026", "openvino-tokenizers>=2026")
PACKAGES = {
    "torch": ("sentence-transformers==6.2.0", "transformers==5.24.0"),
    "openvino": ("sentence-transformers==6.2.0", "transformers>=5.4,<5.6", *INTEL),
    "onnx": ("sentence-transformers==5.1.2", "optimum-onnx[onnxruntime]==0.1.0", "transformers==4.57.3"),
}
APART = {"openvino": (("--no-deps", "optimum-intel==2.2.0"),)}
"""It asks for torchvision, of which pip takes a build for CUDA that does not fit this torch; it is not needed here."""


_EXPORT = """
import sys, sentence_transformers
model = sentence_transformers.SentenceTransformer(sys.argv[1], backend=sys.argv[2], device="cpu")
model.save_pretrained(sys.argv[3])
"""


def directory(backend: str, root: Path) -> str:
    """Where a back end finds the model: exported once, where it needs a graph of its own."""
    if backend == "torch":
        return model_directory()
    saved = root / "models" / f"exported-{backend}"
    if not (saved / "modules.json").exists():
        made = environments.environment(f"st-{backend}", _steps(backend), root)
        run_in(made, "-c", _EXPORT, model_directory(), backend, str(saved))
    return str(saved)


def _command(backend: str) -> Callable[[Path, int, Path], Sequence[str]]:
    def command(made: Path, port: int, root: Path) -> Sequence[str]:
        return [str(made / "bin" / "python"), "-P", str(SERVING), backend, directory(backend, root), str(port)]

    return command


def _steps(backend: str) -> tuple[tuple[str, ...], ...]:
    return ((TORCH,), (TORCH, *PACKAGES[backend], *UVICORN), *APART.get(backend, ()))


def _peer(name: str, backend: str) -> Peer:
    steps = _steps(backend)
    note = f"back end {backend}, its defaults; a minimal HTTP server of ours in front, no batching across requests"
    return Peer(name, note, f"st-{backend}", steps, _command(backend))


PEERS = (
    _peer("sentence-transformers", "torch"),
    _peer("sentence-transformers openvino", "openvino"),
    _peer("sentence-transformers onnx", "onnx"),
)

if __name__ == "__main__":
    main(*PEERS)
