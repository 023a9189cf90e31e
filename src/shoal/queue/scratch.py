"""A directory for as long as a process lives, and the removal of those whose process was killed.

The owner holds a lock in its directory, which the kernel lets go when the owner dies, however it dies. It must not know
what lies in a directory.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["Scratch"]

_LOCK = "owner.lock"


class Scratch:
    """A fresh directory in the system's temporary one, private to this user.

    Args:
        prefix: its name starts so; what dead owners left under the same prefix is removed.

    Attributes:
        path: where it is.
    """

    def __init__(self, prefix: str) -> None:
        _sweep(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        unlocked = self.path / f"new.{_LOCK}"
        self._lock = os.open(unlocked, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unlocked.rename(self.path / _LOCK)  # seen by others only once it is locked

    def remove(self) -> None:
        """Remove it with all that lies in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _sweep(prefix: str) -> None:
    for lock in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_LOCK}"):
        if _is_free(lock):
            shutil.rmtree(lock.parent, ignore_errors=True)


def _is_free(lock: Path) -> bool:
    try:
        opened = os.open(lock, os.O_RDWR)
    except OSError:  # another one removes it, or it is somebody else's
        return False
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(opened)
    return True
