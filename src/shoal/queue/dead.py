"""Dead letters: messages given up for good, kept apart for an operator. In memory here; `jetstream_dead` is the other.

Both hold so many, so many bytes and so long at most, and let go of the oldest first. It must not know what they say.
"""

from __future__ import annotations

import time
from collections import deque

import msgspec

__all__ = ["MAX_AGE_S", "MAX_BYTES", "MAX_LETTERS", "Buried", "DeadBox"]

MAX_LETTERS = 1_000
MAX_BYTES = 64 * 1024 * 1024
MAX_AGE_S = 7 * 86_400.0


class Buried(msgspec.Struct, frozen=True):
    """A dead letter: its number, which grows and is never used twice, and what was put in."""

    number: int
    body: bytes


class DeadBox:
    """The dead letters of one pool, in memory."""

    def __init__(self) -> None:
        self._letters: deque[tuple[float, Buried]] = deque()
        self._num_ever = 0

    def put(self, body: bytes) -> None:
        """Add one; the oldest may have to go for it."""
        self._num_ever += 1
        self._letters.append((time.time(), Buried(self._num_ever, body)))
        while len(self._letters) > MAX_LETTERS or sum(len(letter.body) for _, letter in self._letters) > MAX_BYTES:
            self._letters.popleft()

    def all(self) -> list[Buried]:
        """Oldest first."""
        while self._letters and self._letters[0][0] < time.time() - MAX_AGE_S:
            self._letters.popleft()
        return [letter for _, letter in self._letters]

    def remove(self, number: int | None) -> int:
        """Remove one, or all; returns how many."""
        kept = [] if number is None else [entry for entry in self._letters if entry[1].number != number]
        num_removed = len(self._letters) - len(kept)
        self._letters = deque(kept)
        return num_removed
