"""What every result file says about where it was measured: CPU, versions, commit, and the machine's own matrix rate."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = ("shoal", "openvino", "sentence-transformers", "transformers", "torch", "tokenizers", "nats-py", "uvicorn")


def describe(packages: tuple[str, ...] = PACKAGES) -> dict[str, Any]:
    """CPU model, usable cores, instruction sets that matter, versions, commit, date and the command that ran."""
    info = Path("/proc/cpuinfo").read_text()
    fields = dict(
        line.split("\t: ", 1) for line in info.split("\n\n")[0].replace("\t\t:", "\t:").splitlines() if "\t: " in line
    )
    flags = set(fields.get("flags", "").split())
    return {
        "command": " ".join(["python -m", _module(Path(sys.argv[0])), *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "cpu": fields.get("model name", platform.processor()),
        "cores": len(os.sched_getaffinity(0)),
        "instructions": sorted(flags & {"avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8"}),
        "python": platform.python_version(),
        "versions": {name: version for name in packages if (version := _version(name))},
    }


def commit() -> str:
    """The short name of what is checked out; empty where that is no repository."""
    told = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return told.stdout.strip()


def _module(path: Path) -> str:
    """The module that runs, as `python -m` is given it."""
    parts = path.resolve().with_suffix("").parts
    first = parts.index("benchmarks") if "benchmarks" in parts else len(parts) - 1
    return ".".join(part for part in parts[first:] if part != "__main__")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def matrix_rate_gflops(
    rows: int = 4096, inner: int = 384, columns: int = 1536, seconds: float = 0.4
) -> dict[str, float]:
    """GFLOP/s of one large matrix product by torch on all cores: float32, and bfloat16 where it is native.

    The shape is the feed-forward layer of a small encoder over a batch of 4,096 tokens.
    """
    import torch

    native = _has_bfloat16()
    rates = {}
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        if name == "bfloat16" and not native:
            continue
        left = torch.randn(rows, inner).to(dtype)
        right = torch.randn(columns, inner).to(dtype)
        torch.nn.functional.linear(left, right)
        times = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            torch.nn.functional.linear(left, right)
            times.append(time.perf_counter() - start)
        rates[name] = 2 * rows * inner * columns / statistics.median(times) / 1e9
    return rates


def _has_bfloat16() -> bool:
    flags = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    return "avx512_bf16" in flags or "amx_bf16" in flags


def encoder_flops_per_token(config: dict[str, Any], sequence_length: float) -> float:
    """Multiply-adds counted twice, of a BERT-like encoder: 2 * weights + attention's two products of n x n."""
    hidden, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    return float(layers * (2 * (4 * hidden * hidden + 2 * hidden * inner) + 4 * hidden * sequence_length))


def process_cpu_s(pid: int) -> float:
    """User and system seconds of a process so far, all threads, its living children counted."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = " ".join(task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/children")).split()
    own_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own_s + sum(process_cpu_s(int(child)) for child in children)
