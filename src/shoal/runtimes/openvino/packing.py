"""Which text lies in which row: a pure function of the texts' lengths.

Texts are packed, not padded: several lie in one row and see only themselves. Attention costs a token the width of its
row, so a long text must not widen the rows of short ones; each width costs a run of its own, so widths are few.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["Rows", "plan_rows", "row_width"]

_WIDTHS = (16, 32, 64, 128, 192, 256, 320, 384, 448, 512)
_USUAL_WIDTH = 128


class Rows(msgspec.Struct, frozen=True):
    """Rows of one width, run together; entry i of each array is about one text.

    Attributes:
        width: tokens in a row.
        num_rows: how many.
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

    def add(self, item: int, length: int) -> None:
        self.items.append(item)
        self.starts.append(self.used)
        self.used += length


def row_width(length: int) -> int:
    """The narrowest row that takes `length` tokens: a step of the ladder, beyond it a multiple of 256."""
    place = bisect.bisect_left(_WIDTHS, length)
    return _WIDTHS[place] if place < len(_WIDTHS) else -(-length // 256) * 256


def plan_rows(lengths: Sequence[int]) -> list[Rows]:
    """Place every text in exactly one row, longest first, each in the row that it fills best; widest rows first."""
    left = sum(lengths)
    open_rows: dict[int, list[_Row]] = {}
    rooms: list[int] = []
    rows: list[_Row] = []
    for item in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        length = lengths[item]
        place = bisect.bisect_left(rooms, length)
        if place == len(rooms):
            row = _Row(row_width(max(length, min(left, _USUAL_WIDTH))))
            rows.append(row)
        else:
            row = open_rows[rooms[place]].pop()
            if not open_rows[rooms[place]]:
                del open_rows[rooms.pop(place)]
        row.add(item, length)
        left -= length
        room = row.width - row.used
        if room not in open_rows:
            open_rows[room] = []
            bisect.insort(rooms, room)
        open_rows[room].append(row)
    return list(_by_width(rows))


def _by_width(rows: list[_Row]) -> Iterator[Rows]:
    for width in sorted({row.width for row in rows}, reverse=True):
        alike = [row for row in rows if row.width == width]
        counts = [len(row.items) for row in alike]
        yield Rows(
            width=width,
            num_rows=len(alike),
            items=np.array([item for row in alike for item in row.items], np.int64),
            rows=np.repeat(np.arange(len(alike)), counts),
            starts=np.array([start for row in alike for start in row.starts], np.int64),
            slots=np.concatenate([np.arange(count) for count in counts]),
        )
