"""A process that ends with its parent, however the parent ends. Only Linux's kernel can promise that.

A process may tie itself (`end_with_parent`), or be started through this file, which ties itself and then becomes the
command (`tied`). Doing it in a `preexec_fn` would run Python between fork and exec in a process that has threads, which
can deadlock. It must not import anything but the standard library: it also runs as a script, without site-packages.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

__all__ = ["end_with_parent", "tied"]

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send us signal `number` when our parent dies; ends us now if process `parent` is gone already."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        sys.exit("the parent process is gone")


def tied(command: Sequence[str], number: int = signal.SIGKILL) -> list[str]:
    """A command that becomes `command`, and is sent signal `number` when this process dies."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(int(number)), *command]


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]), int(sys.argv[2]))
    os.execv(sys.argv[3], sys.argv[3:])  # noqa: S606
