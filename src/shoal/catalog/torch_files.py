"""Tensors in files that torch.save wrote (`*.pt`, `pytorch_model.bin`), found without unpickling them.

Such a file is a zip archive: a pickle that says which tensors there are, and their numbers as they lie in memory.
Unpickling runs what a pickle names. This reader runs nothing: it goes through the pickle's opcodes with a stack of
plain values, knows the handful that a dictionary of tensors needs, takes three names for records of its own, and
refuses the file at the first opcode or name that is something else.
"""

from __future__ import annotations

import pickletools
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from shoal.errors import ModelRefused

__all__ = ["TorchTensor", "read_torch_file"]

_MAX_PICKLE_BYTES = 16 * 1024 * 1024
_LOCAL_HEADER_BYTES = 30


class TorchTensor(msgspec.Struct, frozen=True):
    """Where a tensor lies in its file: C order, little-endian; `dtype` as safetensors names it."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    size_bytes: int


def read_torch_file(file: Path, shown: str = "") -> dict[str, TorchTensor]:
    """All tensors of a file, by name; none of their numbers is read.

    Args:
        shown: what an error calls the file; its name if left out.

    Raises:
        ModelRefused: it is no such file, or its pickle holds more than a dictionary of tensors.
    """
    try:
        with zipfile.ZipFile(file) as archive, file.open("rb") as stream:
            folder = _folder(archive)
            records = _Records(archive.read(folder + "data.pkl")).read()
            return {name: _place(record, archive, folder, stream) for name, record in records.items()}
    except _BROKEN as error:
        raise ModelRefused(
            f"{shown or file.name}: not read as a dictionary of tensors saved by torch: {error}",
            param=shown or file.name,
            hint="A pickle is never run. Save the model again with safetensors.",
        ) from error


_BROKEN = (
    zipfile.BadZipFile,
    struct.error,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What going through bytes of any kind may raise, here and in the two parsers of the standard library."""


def _folder(archive: zipfile.ZipFile) -> str:
    """What stands before the names in the archive."""
    pickles = [info for info in archive.infolist() if info.filename.endswith("data.pkl")]
    if len(pickles) != 1 or pickles[0].file_size > _MAX_PICKLE_BYTES:
        raise ValueError("it must hold one data.pkl of ordinary size")
    folder = pickles[0].filename.removesuffix("data.pkl")
    if folder + "byteorder" in archive.namelist() and archive.read(folder + "byteorder") != b"little":
        raise ValueError("its numbers are not little-endian")
    return folder


class _Storage(msgspec.Struct, frozen=True):
    dtype: str
    item_bytes: int
    key: str


class _Tensor(msgspec.Struct, frozen=True):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Name(msgspec.Struct, frozen=True):
    """A name in the pickle, which stands for itself: nothing is imported."""

    name: str


_STORAGES = {
    "torch DoubleStorage": ("F64", 8),
    "torch FloatStorage": ("F32", 4),
    "torch HalfStorage": ("F16", 2),
    "torch BFloat16Storage": ("BF16", 2),
    "torch LongStorage": ("I64", 8),
    "torch IntStorage": ("I32", 4),
    "torch ShortStorage": ("I16", 2),
    "torch CharStorage": ("I8", 1),
    "torch ByteStorage": ("U8", 1),
    "torch BoolStorage": ("BOOL", 1),
}


def _ordered_dict() -> dict[Any, Any]:
    return {}


def _tensor(storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any) -> _Tensor:
    return msgspec.convert({"storage": storage, "offset": offset, "shape": shape, "strides": strides}, _Tensor)


def _parameter(tensor: _Tensor, *_: Any) -> _Tensor:
    return tensor


_CALLS: dict[str, Callable[..., Any]] = {
    "collections OrderedDict": _ordered_dict,
    "torch._utils _rebuild_tensor_v2": _tensor,
    "torch._utils _rebuild_parameter": _parameter,
}
"""What a pickle of tensors calls, and the records that are made instead."""

_MARK = object()
_VALUES = frozenset(("BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1"))
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Records:
    """One pass over a pickle's opcodes."""

    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self) -> dict[str, _Tensor]:
        """The dictionary of tensors that the pickle describes."""
        for opcode, argument, _ in pickletools.genops(self._pickled):
            self._step(opcode.name, argument)
        (result,) = self._stack
        return msgspec.convert(result, dict[str, _Tensor])

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._memo[len(self._memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name in _TUPLES:
            stack[-_TUPLES[name] :] = [tuple(stack[-_TUPLES[name] :])]
        elif name in _STEPS:
            _STEPS[name](self, argument)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"it holds {name}")

    def _above_mark(self) -> list[Any]:
        place = len(self._stack) - 1 - self._stack[::-1].index(_MARK)
        above = self._stack[place + 1 :]
        del self._stack[place:]
        return above

    def _tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._above_mark()))

    def _name(self, name: str) -> None:
        if name not in _CALLS and name not in _STORAGES:
            raise ValueError(f"it names {name}")
        self._stack.append(_Name(name))

    def _stack_name(self, _: Any) -> None:
        name = self._stack.pop()
        self._name(f"{self._stack.pop()} {name}")

    def _storage(self, _: Any) -> None:
        kind, storage, key, *_rest = self._stack.pop()
        if kind != "storage":
            raise ValueError(f"it refers to {kind!r}")
        self._stack.append(_Storage(*_STORAGES[storage.name], str(key)))

    def _call(self, _: Any) -> None:
        arguments = self._stack.pop()
        self._stack.append(_CALLS[self._stack.pop().name](*arguments))

    def _set_items(self, _: Any) -> None:
        pairs = self._above_mark()
        self._dictionary().update(zip(pairs[::2], pairs[1::2], strict=True))

    def _set_item(self, _: Any) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._dictionary()[key] = value

    def _dictionary(self) -> dict[Any, Any]:
        if not isinstance(self._stack[-1], dict):
            raise ValueError("it fills what is no dictionary")
        return self._stack[-1]

    def _build(self, _: Any) -> None:
        """State of an OrderedDict: bookkeeping of torch's modules, of no use here."""
        self._stack.pop()
        self._dictionary()


_STEPS: dict[str, Callable[[_Records, Any], None]] = {
    "MARK": lambda records, _: records._stack.append(_MARK),
    "EMPTY_DICT": lambda records, _: records._stack.append({}),
    "TUPLE": _Records._tuple,
    "GLOBAL": _Records._name,
    "STACK_GLOBAL": _Records._stack_name,
    "BINPERSID": _Records._storage,
    "REDUCE": _Records._call,
    "SETITEM": _Records._set_item,
    "SETITEMS": _Records._set_items,
    "BUILD": _Records._build,
}


def _place(tensor: _Tensor, archive: zipfile.ZipFile, folder: str, stream: Any) -> TorchTensor:
    info = archive.getinfo(f"{folder}data/{tensor.storage.key}")
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError("its numbers are compressed")
    stream.seek(info.header_offset)
    header = stream.read(_LOCAL_HEADER_BYTES)
    # A local header may be longer than the directory's entry: torch pads it so that numbers are aligned.
    name_bytes, extra_bytes = struct.unpack_from("<HH", header, _LOCAL_HEADER_BYTES - 4)
    start = info.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes
    count = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if size < 0 or (size > 1 and stride != count):
            raise ValueError("a tensor does not lie in C order")
        count *= size
    if tensor.offset < 0:
        raise ValueError("a tensor lies before its storage")
    offset, size_bytes = tensor.offset * tensor.storage.item_bytes, count * tensor.storage.item_bytes
    if offset + size_bytes > info.file_size:
        raise ValueError("a tensor is cut short")
    return TorchTensor(tensor.storage.dtype, tensor.shape, start + offset, size_bytes)
