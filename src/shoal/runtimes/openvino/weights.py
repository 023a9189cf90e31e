"""Tensors of safetensors files or torch's, mapped and not copied; none may be missing, none may be left over.

A model whose file holds a tensor that the graph did not use is not the model that the graph describes, so it is
refused: wrong vectors are worse than none. This file knows no architecture.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.catalog.torch_files import read_torch_file
from shoal.errors import ModelRefused

__all__ = ["Weights", "open_weights"]

_DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}


class _Entry(msgspec.Struct):
    """A tensor in the file's header; `__metadata__`, the one entry that is none, has no such fields."""

    dtype: str = ""
    shape: tuple[int, ...] = ()
    data_offsets: tuple[int, int] = (0, 0)


class _Stored(msgspec.Struct, frozen=True):
    """Where a tensor lies: its file, dtype as safetensors names it, and bytes."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    raw: Any


class Weights:
    """Tensors by name, below a prefix. `take` gives float32 arrays and remembers what was taken.

    Attributes:
        num_bytes: bytes of all tensors taken so far, as float32.
    """

    def __init__(self, stored: dict[str, _Stored], prefix: str = "", taken: set[str] | None = None) -> None:
        self._stored = stored
        self._prefix = prefix
        self._taken: set[str] = set() if taken is None else taken

    def under(self, prefix: str) -> Weights:
        """The same tensors, seen from below `prefix`."""
        return Weights(self._stored, self._prefix + prefix, self._taken)

    @property
    def num_bytes(self) -> int:
        return sum(4 * int(np.prod(self._stored[name].shape)) for name in self._taken)

    def has(self, name: str) -> bool:
        return self._prefix + name in self._stored

    def take(self, name: str, shape: Sequence[int]) -> npt.NDArray[np.float32]:
        """Tensor `name` as float32; a view of the file if it is stored so. A -1 in `shape` takes any length.

        Raises:
            ModelRefused: it is missing, has another shape, or is not a floating-point tensor.
        """
        stored = self._find(name)
        name = self._prefix + name
        fits = len(stored.shape) == len(shape) and all(
            want in (-1, have) for want, have in zip(shape, stored.shape, strict=True)
        )
        if not fits:
            raise ModelRefused(
                f"{stored.file}: tensor {name} has shape {list(stored.shape)}; config.json says {list(shape)}."
            )
        self._taken.add(name)
        return _float32(stored, name)

    def take_rows(self, name: str, rows: Sequence[int], width: int) -> npt.NDArray[np.float32]:
        """Some rows of the matrix `name` as float32 [len(rows), width], copied; the others are not even read.

        Raises:
            ModelRefused: it is missing, is narrower or wider, has no such row, or is not a floating-point tensor.
        """
        stored = self._find(name)
        if len(stored.shape) != 2 or stored.shape[1] != width or not all(0 <= row < stored.shape[0] for row in rows):
            raise ModelRefused(
                f"{stored.file}: tensor {self._prefix}{name} has shape {list(stored.shape)}; "
                f"its rows {list(rows)} of {width} numbers are needed."
            )
        return _float32(stored, name, list(rows))

    def _find(self, name: str) -> _Stored:
        stored = self._stored.get(self._prefix + name)
        if stored is None:
            files = sorted({other.file for other in self._stored.values()})
            raise ModelRefused(f"{', '.join(files)}: tensor {self._prefix}{name} is missing.")
        return stored

    def refuse_unused(self, ignored: Sequence[str]) -> None:
        """Every tensor below the prefix must have been taken, but for names that fully match a pattern in `ignored`.

        Raises:
            ModelRefused: names the tensor and its file.
        """
        pattern = re.compile("|".join(f"(?:{one})" for one in ignored) or r"(?!)")
        for name, stored in self._stored.items():
            is_ours = name.startswith(self._prefix) and name not in self._taken
            if is_ours and not pattern.fullmatch(name[len(self._prefix) :]):
                raise ModelRefused(
                    f"{stored.file}: tensor {name} is not part of the architecture that config.json describes."
                )


def open_weights(files: Sequence[str | Path], prefix: str = "") -> Weights:
    """Map files of weights.

    Raises:
        ModelRefused: a file is missing, cut short, or neither safetensors nor a dictionary of tensors saved by torch.
    """
    stored: dict[str, _Stored] = {}
    for file in map(Path, files):
        stored.update(_read_header(file) if file.suffix == ".safetensors" else _read_torch_file(file))
    return Weights(stored, prefix)


def _read_torch_file(file: Path) -> dict[str, _Stored]:
    if not file.is_file():
        raise ModelRefused(f"{file} is missing.")
    content = np.memmap(file, np.uint8, "c")
    return {
        _today(name): _Stored(str(file), tensor.dtype, tensor.shape, content[tensor.start :][: tensor.size_bytes])
        for name, tensor in read_torch_file(file).items()
    }


def _read_header(file: Path) -> dict[str, _Stored]:
    # Copy-on-write pages: the graph library wants writable memory, and nothing is ever copied unless written.
    try:
        content = np.memmap(file, np.uint8, "c")
        header_end = 8 + int.from_bytes(content[:8].tobytes(), "little")
        entries = msgspec.json.decode(content[8:header_end].tobytes(), type=dict[str, _Entry])
    except FileNotFoundError:
        raise ModelRefused(f"{file} is missing.") from None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise ModelRefused(f"{file} is not a safetensors file: {error}.") from error
    entries.pop("__metadata__", None)
    stored = {}
    for name, entry in entries.items():
        start, end = (header_end + offset for offset in entry.data_offsets)
        if end > content.shape[0]:
            raise ModelRefused(f"{file} is cut short: tensor {name} ends at byte {end} of {content.shape[0]}.")
        stored[_today(name)] = _Stored(str(file), entry.dtype, entry.shape, content[start:end])
    return stored


def _today(name: str) -> str:
    """A tensor's name today; files that were made of TensorFlow's call a norm's weight gamma and its bias beta."""
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _float32(stored: _Stored, name: str, rows: list[int] | None = None) -> npt.NDArray[np.float32]:
    dtype = _DTYPES.get(stored.dtype)
    if dtype is None:
        raise ModelRefused(
            f"{stored.file}: tensor {name} is stored as {stored.dtype}; understood: {', '.join(_DTYPES)}."
        )
    array = np.frombuffer(stored.raw, dtype).reshape(stored.shape)
    if rows is not None:
        array = array[rows]
    if stored.dtype == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return np.require(array, np.float32, ["C", "A"])
