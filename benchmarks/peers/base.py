"""What a peer is, and how one is started by hand."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import msgspec

from benchmarks import environments, servers
from shoal.bench.targets import Target

__all__ = ["MODEL", "SERVING", "Peer", "Running", "main", "model_directory", "started", "versions"]

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
SERVING = Path(__file__).with_name("serving.py")
UVICORN = ("uvicorn>=0.35,<1", "httptools", "uvloop")
"""What `serving.py` needs beside the library that it serves."""


class Peer(msgspec.Struct, frozen=True):
    """A piece of software that serves the demo model.

    Attributes:
        steps: what its environment is made of, see `environments.environment`; empty for Shoal itself.
        command: from the environment, a port and the root of all environments to what runs it.
        path: of its base URL.
        note: what a reader must know to judge its figures.
    """

    name: str
    note: str
    environment: str
    steps: tuple[tuple[str, ...], ...]
    command: Callable[[Path, int, Path], Sequence[str]]
    kind: str = "openai-base64"
    path: str = ""
    model: str = MODEL


class Running(msgspec.Struct, frozen=True):
    """A peer that answers."""

    peer: Peer
    target: Target
    pid: int
    ready_s: float


@functools.cache
def model_directory() -> str:
    """Where the demo model's files lie."""
    from shoal.catalog import resolve

    return resolve(MODEL).directory


@contextlib.contextmanager
def started(peer: Peer, root: Path) -> Iterator[Running]:
    """Make a peer's environment if needed, start it, and stop it when the block ends.

    Raises:
        RuntimeError: it does not answer.
        subprocess.CalledProcessError: its environment cannot be made.
    """
    made = environments.environment(peer.environment, peer.steps, root) if peer.steps else Path()
    port = servers.free_port()
    with servers.process(peer.command(made, port, root)) as process:
        target = Target(peer.name, peer.kind, f"http://127.0.0.1:{port}{peer.path}", peer.model)
        body = {"model": peer.model, "input": ["hello"]}

        def answers() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return httpx.post(f"http://127.0.0.1:{port}{_route(peer)}", json=body, timeout=60).status_code == 200
            return False

        ready_s = servers.wait_until(answers, 600, f"{peer.name} answers", process)
        yield Running(peer, target, process.pid, ready_s)


LIBRARIES = (
    "sentence-transformers", "transformers", "torch", "openvino", "optimum-intel", "onnxruntime", "infinity-emb",
    "fastembed", "embed-anything", "shoal",
)  # fmt: skip
_VERSIONS = """
import importlib.metadata, json, sys
found = {one.metadata["name"].lower().replace("_", "-"): one.version for one in importlib.metadata.distributions()}
print(json.dumps({name: found[name] for name in sys.argv[1:] if name in found}))
"""


def versions(peer: Peer, root: Path) -> dict[str, str]:
    """What is installed in a peer's environment, of what matters for its speed."""
    python = root / peer.environment / "bin" / "python" if peer.steps else Path(sys.executable)
    told = subprocess.run([str(python), "-P", "-c", _VERSIONS, *LIBRARIES], check=True, capture_output=True)
    found: dict[str, str] = json.loads(told.stdout)
    return found if peer.steps else {name: found[name] for name in ("shoal", "openvino") if name in found}


def _route(peer: Peer) -> str:
    return f"{peer.path}/embeddings" if peer.path else "/v1/embeddings"


def main(*peers: Peer) -> None:
    """Start one of a script's peers and say where it is, until Ctrl-C."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", choices=[peer.name for peer in peers], default=peers[0].name)
    parser.add_argument("--environments", type=Path, default=environments.ROOT)
    options = parser.parse_args()
    chosen = next(peer for peer in peers if peer.name == options.peer)
    with started(chosen, options.environments) as running, contextlib.suppress(KeyboardInterrupt):
        print(f"{chosen.name}: {running.target.url} after {running.ready_s:.1f} s; stop: Ctrl-C", flush=True)
        while True:
            time.sleep(3600)


def run_in(made: Path, *arguments: str) -> None:
    """Run a Python script in an environment and wait for it; -P keeps this directory from hiding packages."""
    subprocess.run([str(made / "bin" / "python"), "-P", *arguments], check=True)
