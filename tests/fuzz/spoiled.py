"""Strategies that spoil a good request: wrong values at any place, and broken bytes. They know JSON and MessagePack."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import msgspec
from hypothesis import strategies as st

__all__ = ["json_bodies", "msgpack_bodies"]

Pairs = tuple[tuple[Any, Any], ...]
"""An object as its (key, value) pairs, so that a key may stand twice."""

NUMBERS = st.sampled_from([0, 1, -1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, 1e308, math.nan, math.inf, -math.inf])
TEXTS = st.one_of(
    st.sampled_from(["", "\ud800", "a\udfffb", "\x00", "input", "query", "[SEP]", "e\u0301", "long " * 400]),
    st.text(max_size=20),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, st.integers())
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(st.tuples(TEXTS, inner), max_size=3).map(lambda pairs: tuple(pairs))
    ),
    max_leaves=8,
)


def nested(value: Any, depth: int) -> Any:
    """The value in so many lists."""
    for _ in range(depth):
        value = [value]
    return value


VALUES = st.one_of(JUNK, st.builds(nested, SCALARS, st.sampled_from([1, 2, 60, 3000])))


def as_pairs(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((key, as_pairs(entry)) for key, entry in value.items())
    return [as_pairs(entry) for entry in value] if isinstance(value, list) else value


@st.composite
def spoiled(draw: st.DrawFn, good: dict[str, Any]) -> Any:
    """The good request with one to three things wrong."""
    value = as_pairs(good)
    for _ in range(draw(st.integers(1, 3))):
        value = _spoil(draw, value)
    return value


def _spoil(draw: st.DrawFn, value: Any) -> Any:
    """One change: here, or further inside."""
    if isinstance(value, tuple) and value:
        place = draw(st.integers(0, len(value) - 1))
        key, entry = value[place]
        change = draw(st.sampled_from(["inside", "inside", "inside", "twice", "left out", "renamed", "more"]))
        changed: Pairs = {
            "inside": ((key, _spoil(draw, entry)),),
            "twice": ((key, entry), (key, draw(VALUES))),
            "left out": (),
            "renamed": ((draw(TEXTS), entry),),
            "more": ((key, entry), (draw(TEXTS), draw(VALUES))),
        }[change]
        return value[:place] + changed + value[place + 1 :]
    if isinstance(value, list) and value and draw(st.booleans()):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], _spoil(draw, value[place]), *value[place + 1 :]]
    return draw(VALUES)


def to_json(value: Any) -> bytes:
    """As a careless writer would: NaN, half surrogate pairs and keys that stand twice go through."""
    parts: list[str] = []
    stack: list[Any] = [value]
    while stack:  # by hand, as nesting goes deeper than Python's own recursion
        part = stack.pop()
        if isinstance(part, _Text):
            parts.append(part.text)
        elif isinstance(part, tuple):
            stack.append(_Text("}"))
            for place, (key, entry) in reversed(list(enumerate(part))):
                stack += [entry, _Text(("," if place else "") + json.dumps(str(key)) + ":")]
            stack.append(_Text("{"))
        elif isinstance(part, list):
            stack.append(_Text("]"))
            for place, entry in reversed(list(enumerate(part))):
                stack += [entry, _Text("," if place else "")]
            stack.append(_Text("["))
        else:
            parts.append(json.dumps(part))
    return "".join(parts).encode()


class _Text:
    def __init__(self, text: str) -> None:
        self.text = text


def to_msgpack(value: Any) -> bytes:
    """With half surrogate pairs as bytes that are no UTF-8, and keys that stand twice."""
    parts: list[bytes] = []
    stack: list[Any] = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, tuple):
            parts.append(b"\xdf" + struct.pack(">I", len(part)))
            for key, entry in reversed(part):
                stack += [entry, key]
        elif isinstance(part, list):
            parts.append(b"\xdd" + struct.pack(">I", len(part)))
            stack += reversed(part)
        elif isinstance(part, str):
            encoded = part.encode(errors="surrogatepass")
            parts.append(b"\xdb" + struct.pack(">I", len(encoded)) + encoded)
        elif isinstance(part, int) and not -(2**63) <= part < 2**64:
            parts.append(msgspec.msgpack.encode(float("inf")))
        else:
            parts.append(msgspec.msgpack.encode(part))
    return b"".join(parts)


ODD_BYTES = [
    b"\xff",
    b"\xc0\x80",
    b"\x00",
    b"\xc1",
    b"\xdf\xff\xff\xff\xff",
    b"\xd4\x05\x00",
    b"\xc7\x03\xff",
    b'"',
    b"]",
]


@st.composite
def _broken(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes that end early, or have something in their midst."""
    place = draw(st.integers(0, len(whole)))
    if draw(st.booleans()):
        return whole[:place]
    return whole[:place] + draw(st.sampled_from(ODD_BYTES)) + whole[place + draw(st.integers(0, 2)) :]


def json_bodies(good: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """Bodies made of a good one."""
    return st.one_of(spoiled(good).map(to_json), _broken(to_json(as_pairs(good))))


def msgpack_bodies(good: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """Bodies made of a good one."""
    return st.one_of(spoiled(good).map(to_msgpack), _broken(to_msgpack(as_pairs(good))))
