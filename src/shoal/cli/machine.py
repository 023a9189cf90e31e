"""What this machine is, from the kernel's own files: processor, memory, limits, GPUs. Elsewhere less is known."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["describe_machine", "gpus", "memory_limit_bytes", "processor"]

_INSTRUCTIONS = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512 VNNI",
    "avx512_bf16": "AVX-512 BF16",
    "amx_tile": "AMX",
    "amx_bf16": "AMX BF16",
    "amx_int8": "AMX INT8",
    "asimd": "NEON",
    "sve": "SVE",
    "bf16": "BF16",
}
"""Flags of /proc/cpuinfo that matter for speed, and what people call them."""


def describe_machine(root: Path = Path("/")) -> dict[str, Any]:
    """Facts by name; memory in bytes."""
    model, instructions = processor(root)
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "processor": model,
        "cores": os.cpu_count(),
        "usable cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cores allowed by cgroup": _cores_limit(root),
        "instructions": instructions,
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "memory allowed by cgroup": memory_limit_bytes(root),
        "gpus": gpus(),
    }


def processor(root: Path) -> tuple[str, list[str]]:
    """The processor's name, and those of its instruction sets that matter here."""
    path = root / "proc/cpuinfo"
    text = path.read_text() if path.exists() else ""
    name = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*: (.*)$", text, re.MULTILINE)
    found = set(flags[1].split()) if flags else set()
    return (
        name[1] if name else platform.processor(),
        [label for flag, label in _INSTRUCTIONS.items() if flag in found],
    )


def memory_limit_bytes(root: Path) -> int | None:
    """What the container may use, from cgroup v2 or v1; None without a limit."""
    for name in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _read(root / name)
        # Version 1 writes "no limit" as a number near 2^63.
        if text.isdigit() and int(text) < 2**60:
            return int(text)
    return None


def _cores_limit(root: Path) -> float | None:
    quota, _, period = _read(root / "sys/fs/cgroup/cpu.max").partition(" ")
    if not period:
        quota = _read(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = _read(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _read(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def gpus() -> list[str]:
    """NVIDIA devices, as nvidia-smi names them; [] without it."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = [command, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=20)  # noqa: S603
    return done.stdout.strip().splitlines() if done.returncode == 0 else []
