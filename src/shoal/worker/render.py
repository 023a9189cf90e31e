"""Finished results to the bytes of a reply, so that the gateway only joins them. See `types.Render`."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterable
from functools import singledispatch
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from shoal.adapters.base import (
    Entities,
    Finished,
    Labels,
    MultiVectors,
    Scores,
    SparseVectors,
    TokenLists,
    Tokens,
    Vectors,
    WrittenTexts,
)
from shoal.types import Encoding, Render, Rendered

__all__ = ["render"]

SequenceT = TypeVar("SequenceT", npt.NDArray[Any], list[bytes])


def render(result: Finished, how: Render, first_item: int) -> Rendered:
    """The items of a chunk as they stand in the reply body.

    Args:
        first_item: place of the first one in the whole request.
    """
    pieces = _pieces(result, how.encoding)
    return msgspec.structs.replace(_facts(result), body=_join(pieces, how, first_item))


def _join(items: Iterable[bytes], how: Render, first_item: int) -> bytes:
    if how.encoding in ("raw", "msgpack"):
        return b"".join(items)
    if not how.has_index:
        before, after = how.before, how.after
        return b",".join([before + item + after for item in items])
    return b",".join(
        [
            b"%b%d%b%b%b" % (how.before, index, how.between, item, how.after)
            for index, item in enumerate(items, first_item)
        ]
    )


@singledispatch
def _facts(result: Any) -> Rendered:
    return Rendered(b"")


@_facts.register
def _(result: Vectors) -> Rendered:
    return Rendered(b"", result.dimensions, [] if result.scales is None else result.scales.tolist())


@_facts.register
def _(result: SparseVectors) -> Rendered:
    return Rendered(b"", lengths=result.lengths.tolist())


@_facts.register
def _(result: MultiVectors) -> Rendered:
    return msgspec.structs.replace(_facts(result.vectors), lengths=result.lengths.tolist())


@singledispatch
def _pieces(result: Any, encoding: Encoding) -> Iterable[bytes]:
    """Each item's bytes; with `raw` any pieces that make up the whole."""
    raise TypeError(f"{type(result).__name__} cannot be rendered as {encoding}")


@_pieces.register
def _(result: Vectors, encoding: Encoding) -> Iterable[bytes]:
    rows = np.ascontiguousarray(result.data)
    if encoding == "raw":
        return (rows.tobytes(),)
    return _json_rows(rows) if encoding == "json" else _base64_rows(rows)


@_pieces.register
def _(result: MultiVectors, encoding: Encoding) -> Iterable[bytes]:
    vectors = result.vectors
    if encoding != "base64":
        pieces = list(_pieces(vectors, encoding))
        return pieces if encoding == "raw" else [b"[%b]" % b",".join(rows) for rows in _split(pieces, result.lengths)]
    shape = b'{"shape":[%d,%d],"data":"%b"}'
    texts = _split(np.ascontiguousarray(vectors.data), result.lengths)
    return [shape % (len(rows), vectors.dimensions, b2a_base64(rows.data, newline=False)) for rows in texts]


@_pieces.register
def _(result: SparseVectors, encoding: Encoding) -> Iterable[bytes]:
    if encoding == "raw":
        return (result.indices.tobytes(), result.values.tobytes())
    write = _entries if encoding == "entries" else _columns
    rows = zip(_split(result.indices, result.lengths), _split(result.values, result.lengths), strict=True)
    return [write(indices, values) for indices, values in rows]


@_pieces.register
def _(result: Scores, encoding: Encoding) -> Iterable[bytes]:
    return (result.values.tobytes(),)


@_pieces.register
def _(result: Labels, encoding: Encoding) -> Iterable[bytes]:
    encode = msgspec.msgpack.encode if encoding == "msgpack" else msgspec.json.encode
    return [encode([{"label": label, "score": score} for label, score in ranked]) for ranked in result.ranked]


@_pieces.register
def _(result: Entities, encoding: Encoding) -> Iterable[bytes]:
    encode = msgspec.msgpack.encode if encoding == "msgpack" else msgspec.json.encode
    return [encode(entities) for entities in result.found]


@_pieces.register
def _(result: TokenLists, encoding: Encoding) -> Iterable[bytes]:
    if encoding == "entries":
        return [msgspec.json.encode(_token_entries(tokens)) for tokens in result.items]
    encode = msgspec.msgpack.encode if encoding == "msgpack" else msgspec.json.encode
    columns = ("ids", "tokens", "offsets", "special")
    return [encode({name: getattr(tokens, name) for name in columns}) for tokens in result.items]


@_pieces.register
def _(result: WrittenTexts, encoding: Encoding) -> Iterable[bytes]:
    return [msgspec.json.encode(text) for text in result.items]


def _token_entries(tokens: Tokens) -> list[dict[str, Any]]:
    return [
        {
            "id": token,
            "text": text,
            "special": is_special,
            "start": None if is_special else start,
            "stop": None if is_special else stop,
        }
        for token, text, is_special, (start, stop) in zip(
            tokens.ids, tokens.texts, tokens.special, tokens.offsets, strict=True
        )
    ]


def _columns(indices: npt.NDArray[Any], values: npt.NDArray[Any]) -> bytes:
    return b'{"indices":%b,"values":%b}' % (_json_row(indices), _json_row(values))


def _entries(indices: npt.NDArray[Any], values: npt.NDArray[Any]) -> bytes:
    numbers = _json_row(values)[1:-1].split(b",") if len(values) else []
    entries = [b'{"index":%d,"value":%b}' % entry for entry in zip(indices.tolist(), numbers, strict=True)]
    return b"[%b]" % b",".join(entries)


def _split(flat: SequenceT, lengths: npt.NDArray[np.int32]) -> list[SequenceT]:
    """The part of each item."""
    ends = np.cumsum(lengths).tolist()
    return [flat[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]


def _json_row(row: npt.NDArray[Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)


def _json_rows(rows: npt.NDArray[Any]) -> list[bytes]:
    """`[..]` for each row, numbers in the shortest form that reads back as the same float: one pass for all rows."""
    return [b"[%b]" % row for row in _json_row(rows)[2:-2].split(b"],[")] if len(rows) else []


def _base64_rows(rows: npt.NDArray[Any]) -> Iterable[bytes]:
    return (b'"%b"' % b2a_base64(row.data, newline=False) for row in rows)
