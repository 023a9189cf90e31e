"""Frames between a sidecar and its runtime host: a prefix, a MessagePack header, the raw bytes of some arrays.

    uint32 header size | uint32 body size | header | padding | array | padding | array | ...

Both ends use this file; it knows sizes and shapes, never sockets, models or what a run means. Arrays start at multiples
of 16 bytes and are views of the received buffer: nothing is copied on receipt.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np

from shoal.catalog.spec import ModelSpec
from shoal.runtimes.base import Arrays, Footprint, RuntimeOptions, SessionFacts
from shoal.types import ErrorBody

__all__ = [
    "SOCKET_BUFFER_BYTES",
    "ArrayHead",
    "Estimate",
    "Estimated",
    "Failed",
    "FrameReader",
    "Load",
    "Loaded",
    "Ran",
    "Run",
    "Unload",
    "Unloaded",
    "arrays_of",
    "decode_order",
    "decode_report",
    "pack",
    "unpack",
]


class ArrayHead(msgspec.Struct, frozen=True, array_like=True):
    """What it takes to read an array's bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Estimate(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Order: say what memory a model would take."""

    id: int
    runtime: str
    spec: ModelSpec
    options: RuntimeOptions


class Load(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Order: load a model and keep it under the name `session`."""

    id: int
    session: str
    runtime: str
    spec: ModelSpec
    options: RuntimeOptions


class Run(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Order: run a batch. The arrays are the fields of `Features`."""

    id: int
    session: str
    arrays: tuple[ArrayHead, ...] = ()


class Unload(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Order: free a session; one that is not there is no error."""

    id: int
    session: str


class Estimated(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Report: what memory the model would take."""

    id: int
    footprint: Footprint


class Loaded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Report: the session is ready."""

    id: int
    facts: SessionFacts


class Ran(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Report: the outputs of a batch, the seconds it took on the device, and its tokens, padding included."""

    id: int
    seconds: float
    arrays: tuple[ArrayHead, ...] = ()
    device_tokens: int = 0


class Unloaded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Report: the session is gone."""

    id: int


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Report: the order of this id failed; the host lives on. Want of memory is told apart: smaller may work."""

    id: int
    error: ErrorBody
    is_out_of_memory: bool = False


_PREFIX = struct.Struct("<II")
_ALIGNMENT = 16
_BUFFER_BYTES = 64 * 1024
SOCKET_BUFFER_BYTES = 4 * 1024 * 1024
"""Asked of the kernel for each end, so that a whole batch lies ready while another runs."""
_PADDING = bytes(_ALIGNMENT)

_encode = msgspec.msgpack.Encoder().encode
decode_order = msgspec.msgpack.Decoder(Estimate | Load | Run | Unload).decode
decode_report = msgspec.msgpack.Decoder(Estimated | Loaded | Ran | Unloaded | Failed).decode


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def pack(header: msgspec.Struct, arrays: Arrays | None = None) -> bytes:
    """A frame; with arrays, the header's `arrays` field is filled in."""
    parts: list[Any] = [b"", b"", b""]
    body_size = 0
    heads = []
    for name, array in (arrays or {}).items():
        array = np.ascontiguousarray(array)
        padding = _aligned(array.nbytes) - array.nbytes
        heads.append(ArrayHead(name, array.dtype.str, array.shape))
        parts += [array.data if array.size else b"", _PADDING[:padding]]
        body_size += array.nbytes + padding
    if heads:
        header = msgspec.structs.replace(header, arrays=tuple(heads))
    encoded = _encode(header)
    parts[0] = _PREFIX.pack(len(encoded), body_size)
    parts[1] = encoded
    parts[2] = _PADDING[: _body_start(len(encoded)) - _PREFIX.size - len(encoded)]
    return b"".join(parts)


def _body_start(header_size: int) -> int:
    return _aligned(_PREFIX.size + header_size)


def unpack(frame: memoryview) -> tuple[memoryview, memoryview]:
    """The encoded header and the body of a frame."""
    header_size, body_size = _PREFIX.unpack_from(frame)
    start = _body_start(header_size)
    return frame[_PREFIX.size : _PREFIX.size + header_size], frame[start : start + body_size]


def arrays_of(heads: tuple[ArrayHead, ...], body: memoryview) -> Arrays:
    """The arrays of a body, as writable views of it."""
    arrays: Arrays = {}
    offset = 0
    for head in heads:
        array: np.ndarray[Any, Any] = np.ndarray(head.shape, head.dtype, body, offset)
        arrays[head.name] = array
        offset += _aligned(array.nbytes)
    return arrays


class FrameReader:
    """Turns received bytes into frames, each in a buffer of its own: `buffer`, receive into it, `received`."""

    def __init__(self) -> None:
        self._buffer = bytearray(_BUFFER_BYTES)
        self._filled = 0

    @property
    def buffer(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        return memoryview(self._buffer)[self._filled :]

    def received(self, num_bytes: int) -> list[memoryview]:
        """Count so many bytes as received; returns the frames that are whole now."""
        self._filled += num_bytes
        frames = []
        while self._filled >= _PREFIX.size:
            header_size, body_size = _PREFIX.unpack_from(self._buffer)
            size = _body_start(header_size) + body_size
            if size > self._filled:
                if size > len(self._buffer):
                    self._move_rest(0, capacity=size)
                break
            frames.append(memoryview(self._buffer)[:size])
            self._move_rest(size, capacity=_BUFFER_BYTES)
        return frames

    def _move_rest(self, start: int, capacity: int) -> None:
        rest = memoryview(self._buffer)[start : self._filled]
        self._buffer = bytearray(max(capacity, len(rest) + 1))
        self._buffer[: len(rest)] = rest
        self._filled = len(rest)
