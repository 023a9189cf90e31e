"""The ledger: one line for each finished trial, written before anything is made of it. Knows no trial's meaning.

A line is whole or it is not there: the file is opened to append, each line is flushed to the disk, and a last line that
a killed process left torn is cut off when the file is opened again. So a loop can be killed at any moment, and what it
finished is never done again. While it is open it is locked, so that two searches never share it; the lock ends with the
process, however that ends, and servers do not inherit it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import msgspec

from shoal.errors import InvalidRequest

__all__ = ["Entry", "Ledger", "Status", "digest_of", "read_entries"]

T = TypeVar("T")

Status = Literal["measured", "discard", "keep", "crash"]
"""measured: figures, no verdict yet. discard, keep: the verdict on a configuration. crash: it did not run."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finished trial.

    Attributes:
        stage: what was tried: `fit`, `rung N`, `final`, `verdict`.
        configuration: the settings that were tried, by knob; {} stands for the defaults.
        status: see `Status`.
        seed: of the load; 0 where there is none.
        figures: what was measured, by name, with units in the names.
        points: of a race, (rate in requests/s, p99 in ms) of every load, by configuration.
        facts: what the server said of itself.
        reason: why it was discarded, or how it failed.
        seconds: what the trial took.
        at: Unix time in seconds.
    """

    stage: str
    configuration: dict[str, Any]
    status: Status
    seed: int = 0
    figures: dict[str, float] = {}
    points: dict[str, list[tuple[float, float]]] = {}
    reason: str = ""
    facts: dict[str, str] = {}
    seconds: float = 0.0
    at: float = 0.0

    @property
    def key(self) -> tuple[str, str, int]:
        """Equal for equal trials."""
        return self.stage, canonical(self.configuration), self.seed


class _Head(msgspec.Struct, frozen=True):
    """The first line: what the trials are about. A ledger of something else is never continued."""

    ledger: int
    subject: dict[str, Any]


class Ledger:
    """A file of entries that is only ever appended to.

    Attributes:
        entries: all of them, in the order in which they were written.

    Args:
        subject: model, machine, objective, texts: whatever makes two ledgers incomparable if it differs.

    Raises:
        InvalidRequest: the file is about something else, or is no ledger, or another search has it open.
    """

    def __init__(self, path: Path, subject: dict[str, Any]) -> None:
        self.path = path
        subject = msgspec.json.decode(msgspec.json.encode(subject))  # as it will be read back
        self.entries: list[Entry] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")  # closed on exec, as all that Python opens
        try:
            self._lock()
            self._read(subject)
            if self._file.seek(0, os.SEEK_END) == 0:
                self._append(_Head(1, subject))
        except BaseException:
            self._file.close()
            raise
        self._by_key = {entry.key: entry for entry in self.entries}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def find(self, stage: str, configuration: dict[str, Any], seed: int = 0) -> Entry | None:
        """The entry of a trial that is finished."""
        return self._by_key.get((stage, canonical(configuration), seed))

    def write(self, entry: Entry) -> None:
        """Append an entry; when this returns, it is on the disk."""
        self._append(entry)
        self.entries.append(entry)
        self._by_key[entry.key] = entry

    @property
    def digest(self) -> str:
        """See `digest_of`."""
        return digest_of(self.path)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidRequest(
                f"Another search is running in {self.path.parent}.",
                hint="Wait until it has ended, or give another --directory.",
            ) from None

    def _append(self, line: msgspec.Struct) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _line(self, line: bytes, number: int, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(line, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidRequest(
                f"{self.path} is not a ledger: line {number}: {error}.",
                hint="Remove that line, whose trial is then done again, or give another --directory.",
            ) from None

    def _read(self, subject: dict[str, Any]) -> None:
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
        lines = whole.splitlines()
        if not lines:
            return
        head = self._line(lines[0], 1, _Head)
        self.entries = [self._line(line, number, Entry) for number, line in enumerate(lines[1:], 2)]
        if head.subject != subject:
            differing = sorted(
                name for name in {*head.subject, *subject} if head.subject.get(name) != subject.get(name)
            )
            raise InvalidRequest(
                f"{self.path} is about something else: {', '.join(differing)} "
                f"{'differs' if len(differing) == 1 else 'differ'}.",
                hint=f"Give another --directory, or remove {self.path.parent}; or repeat the command that began it.",
            )


def read_entries(path: Path) -> list[Entry]:
    """The entries of a whole ledger."""
    return [msgspec.json.decode(line, type=Entry) for line in path.read_bytes().splitlines()[1:]]


def digest_of(path: Path) -> str:
    """SHA-256 of a ledger's file, in hexadecimal: names this very ledger in a profile."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def canonical(configuration: dict[str, Any]) -> str:
    """The same text for equal configurations."""
    return msgspec.json.encode(configuration, order="sorted").decode()
