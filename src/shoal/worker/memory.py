"""How much memory this machine, or this container, has left, and how much of it models may take."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.settings import parse_size

__all__ = ["budget_bytes", "free_bytes"]

CONTROL_GROUP = Path("/sys/fs/cgroup")

MACHINE_SHARE = 0.8
"""Of the machine's free memory: batches, tokenizers and the system's file cache need some."""

DEVICE_SHARE = 0.9
"""Of a device's own memory."""


def budget_bytes(setting: str, device_bytes: int | None = None) -> int:
    """Bytes that models may take together.

    Args:
        setting: bytes with a unit; empty or 0 takes a share of the device's memory.
        device_bytes: of a device with memory of its own; None stands for the machine's, as far as it is free now.
    """
    if size := parse_size(setting):
        return size
    return int(MACHINE_SHARE * free_bytes() if device_bytes is None else DEVICE_SHARE * device_bytes)


def free_bytes() -> int:
    """Bytes that could be taken without swapping: the machine's, or what the control group still allows if less."""
    free = _available_bytes()
    limit, used = (_number(CONTROL_GROUP / name) for name in ("memory.max", "memory.current"))
    if limit is None or used is None:
        return free
    return max(0, min(free, limit - used + _file_cache_bytes()))


def _available_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _file_cache_bytes() -> int:
    """Pages of files that a control group counts as used, and that would go before anything else."""
    try:
        lines = (CONTROL_GROUP / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no control groups here, or "max"
        return None
