"""Finished vectors to the bytes of a reply, so that the gateway only joins them. See `types.Render`."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterable

import numpy as np
import orjson

from shoal.adapters.base import Vectors
from shoal.types import Render

__all__ = ["render"]


def render(vectors: Vectors, how: Render, first_item: int) -> bytes:
    """The items of a chunk as they stand in the reply body.

    Args:
        first_item: place of the first one in the whole request.
    """
    rows = np.ascontiguousarray(vectors.data)
    if how.encoding == "raw":
        return rows.tobytes()
    items = _json_rows(rows) if how.encoding == "json" else _base64_rows(rows)
    if not how.has_index:
        before, after = how.before, how.after
        return b",".join([before + item + after for item in items])
    return b",".join(
        [
            b"%b%d%b%b%b" % (how.before, index, how.between, item, how.after)
            for index, item in enumerate(items, first_item)
        ]
    )


def _json_rows(rows: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> list[bytes]:
    """`[..]` for each row, numbers in the shortest form that reads back as the same float: one pass for all rows."""
    text = orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)
    return [b"[%b]" % row for row in text[2:-2].split(b"],[")]


def _base64_rows(rows: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Iterable[bytes]:
    return (b'"%b"' % b2a_base64(row.data, newline=False) for row in rows)
