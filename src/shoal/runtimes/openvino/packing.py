"""Which text lies in which row: a pure function of the texts' lengths.

Texts are packed, not padded: several lie in one row and see only themselves. Padding costs a token's whole work, a
wider row costs a token a little more attention, a further run costs some dozens of tokens: `plan_rows` weighs these.

Shapes are few, because the library keeps kernels (and about half a MiB) for each: widths come from a ladder, so does a
run's number of rows, and a row of `width` tokens has always `num_slots(width)` places for texts.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["MAX_SHARED_WIDTH", "Rows", "num_slots", "plan_rows", "row_count", "row_width"]

_LADDER = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512)
_CANDIDATES = (64, 128, 56, 112, 256, 32, 192, 512)
"""Widths that short texts are packed to, tried in this order until one is good enough."""

MAX_SHARED_WIDTH = max(_CANDIDATES)
"""A wider row holds a text that needs it."""

_GOOD_ENOUGH = 1.06
_RUN_COST_TOKENS = 32
"""What a run costs, measured in tokens of work."""


class Rows(msgspec.Struct, frozen=True):
    """One run: rows of one width; entry i of each array is about one text.

    Attributes:
        width: tokens in a row.
        num_rows: how many, see `row_count`; the last ones may be empty.
        items: int64, which text, as numbered in the lengths given to `plan_rows`.
        rows, starts, slots: int64, its row, where in the row it starts, and how many texts stand before it there.
    """

    width: int
    num_rows: int
    items: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]


class _Row:
    def __init__(self, width: int) -> None:
        self.width, self.used, self.items, self.starts = width, 0, list[int](), list[int]()

    def add(self, item: int, length: int) -> int:
        """Place a text; returns the room that is left."""
        self.items.append(item)
        self.starts.append(self.used)
        self.used += length
        return self.width - self.used if len(self.items) < num_slots(self.width) else 0


def row_width(length: int) -> int:
    """The narrowest row that takes `length` tokens: a step of the ladder, beyond it eight steps an octave."""
    if length <= _LADDER[-1]:
        return _LADDER[bisect.bisect_left(_LADDER, length)]
    step: int = 1 << ((length - 1).bit_length() - 3)
    return -(-length // step) * step


def row_count(num_rows: int) -> int:
    """The least number of rows that a run may have and that holds `num_rows`: all up to 8, then four an octave.

    Powers of two alone would be fewer shapes, and more padding or more runs in batches of some hundred tokens.
    """
    step: int = max(1, 1 << ((num_rows - 1).bit_length() - 3)) if num_rows > 8 else 1
    return -(-num_rows // step) * step


def num_slots(width: int) -> int:
    """Texts that a row takes at most."""
    return max(1, width // 4)


def plan_rows(
    lengths: Sequence[int], run_tokens: int = 1024, width_cost: float = 1 / 1400, *, is_packed: bool = True
) -> list[Rows]:
    """Place every text in exactly one row and cut the rows into runs.

    Args:
        lengths: tokens of each text, at least 1.
        run_tokens: a run has at most so many tokens, but for a single row that is wider.
        width_cost: how much more work a token is for each token that its row is wider; 1 / 1400 was measured with
            MiniLM in float32 on AVX2.
        is_packed: whether texts may share a row.
    """
    if not is_packed:
        return [_run(rows, size) for rows, size in _runs(_lone(lengths), run_tokens)]
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    widest = row_width(sum(lengths))
    # No plan is cheaper than each text in a row of its own length, were rows of all lengths free.
    least = _RUN_COST_TOKENS + sum(length * (1 + length * width_cost) for length in lengths)
    best: list[_Row] = []
    lowest = float("inf")
    for usual in dict.fromkeys(min(width, widest) for width in _CANDIDATES):
        rows = _pack(lengths, order, usual)
        cost = sum(
            _RUN_COST_TOKENS + size * alike[0].width * (1 + alike[0].width * width_cost)
            for alike, size in _runs(rows, run_tokens)
        )
        if cost < lowest:
            best, lowest = rows, cost
        if cost <= _GOOD_ENOUGH * least:
            break
    return [_run(rows, size) for rows, size in _runs(best, run_tokens)]


def _lone(lengths: Sequence[int]) -> list[_Row]:
    """A row for each text, no wider than it must be."""
    rows = []
    for item, length in enumerate(lengths):
        row = _Row(row_width(length))
        row.add(item, length)
        rows.append(row)
    return rows


def _pack(lengths: Sequence[int], order: Sequence[int], usual_width: int) -> list[_Row]:
    """Best fit, longest first; a text that fits nowhere opens a row of the usual width, or of its own if longer."""
    left = sum(lengths)
    rows: list[_Row] = []
    by_room: dict[int, list[_Row]] = {}
    rooms: list[int] = []
    for item in order:
        length = lengths[item]
        place = bisect.bisect_left(rooms, length)
        if place == len(rooms):
            row = _Row(row_width(max(length, min(left, usual_width))))
            rows.append(row)
        else:
            row = by_room[rooms[place]].pop()
            if not by_room[rooms[place]]:
                del by_room[rooms.pop(place)]
        left -= length
        room = row.add(item, length)
        if room:
            if room not in by_room:
                by_room[room] = []
                bisect.insort(rooms, room)
            by_room[room].append(row)
    return rows


def _runs(rows: list[_Row], run_tokens: int) -> Iterator[tuple[list[_Row], int]]:
    """Rows of one width, widest first, and how many the run has."""
    for width in sorted({row.width for row in rows}, reverse=True):
        alike = [row for row in rows if row.width == width]
        most = max(1, run_tokens // width)
        while alike:
            size = min(row_count(len(alike)), most)
            yield alike[:size], size
            alike = alike[size:]


def _run(rows: list[_Row], size: int) -> Rows:
    counts = [len(row.items) for row in rows]
    return Rows(
        width=rows[0].width,
        num_rows=size,
        items=np.array([item for row in rows for item in row.items], np.int64),
        rows=np.repeat(np.arange(len(rows)), counts),
        starts=np.array([start for row in rows for start in row.starts], np.int64),
        slots=np.concatenate([np.arange(count) for count in counts]),
    )
