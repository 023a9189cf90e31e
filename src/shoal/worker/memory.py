"""How much memory this machine, or this container, has left."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["free_bytes"]


def free_bytes() -> int:
    """Bytes that could be taken without swapping: the machine's, or what the control group still allows if less."""
    free = _available_bytes()
    limit, used = (_number(Path("/sys/fs/cgroup") / name) for name in ("memory.max", "memory.current"))
    return free if limit is None or used is None else max(0, min(free, limit - used))


def _available_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no control groups here, or "max"
        return None
