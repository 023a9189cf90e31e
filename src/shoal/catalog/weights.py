"""Where the weights lie: safetensors files, or torch's, and their headers, read without loading a number."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from shoal.catalog.configs import Family
from shoal.catalog.files import ModelFiles, refusal
from shoal.catalog.torch_files import read_torch_file
from shoal.errors import ModelRefused

__all__ = ["all_weights", "find_weights", "require_shape", "tensor_shapes", "weight_shapes", "weights_file"]

_WEIGHTS = "model.safetensors"
_TORCH_WEIGHTS = "pytorch_model.bin"
_MAX_HEADER_BYTES = 100_000_000
_FLOATS = ("F32", "F16", "BF16")


def find_weights(
    files: ModelFiles, prefix: str, family: Family, config: Mapping[str, Any]
) -> tuple[tuple[str, ...], str]:
    """Absolute paths of the encoder's weights, and what stands before its tensor names.

    Raises:
        MissingFile: no file of weights, or a shard is missing.
        ModelRefused: the word embeddings are not there or do not have the shape that config.json says.
    """
    names = _weight_files(files, prefix)
    shapes = weight_shapes(files, prefix)
    width = int(config[family.embedding_size_key or family.hidden_size_key])
    for before in family.prefixes:
        key = f"{before}{family.embeddings}.weight"
        if key in shapes:
            require_shape(names[0], key, shapes, (int(config["vocab_size"]), width))
            return all_weights(files, prefix), before
    raise refusal(names[0], f"{family.embeddings}.weight", f"is missing: not the weights of a {family.name}.")


def all_weights(files: ModelFiles, prefix: str) -> tuple[str, ...]:
    """Absolute paths of the encoder's weights.

    Raises:
        MissingFile: no file of weights, or a shard is missing.
    """
    return tuple(str(files.path(name)) for name in _weight_files(files, prefix))


def weight_shapes(files: ModelFiles, prefix: str) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors of the encoder's files.

    Raises:
        MissingFile, ModelRefused: as in `find_weights`.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for name in _weight_files(files, prefix):
        shapes.update(tensor_shapes(files, name))
    return shapes


def _weight_files(files: ModelFiles, prefix: str) -> list[str]:
    for index in (f"{prefix}{_WEIGHTS}.index.json", f"{prefix}{_TORCH_WEIGHTS}.index.json"):
        if files.has(index) and not files.has(prefix + _WEIGHTS):
            names = sorted({prefix + str(name) for name in files.object(index).get("weight_map", {}).values()})
            for name in names:
                files.require(name)
            return names or [prefix + _WEIGHTS]
    return [weights_file(files, prefix)]


def weights_file(files: ModelFiles, folder: str) -> str:
    """The one file of weights in a folder: safetensors, or torch's own if there is none.

    Raises:
        MissingFile: neither is there.
    """
    if not files.has(folder + _WEIGHTS) and files.has(folder + _TORCH_WEIGHTS):
        return folder + _TORCH_WEIGHTS
    files.require(folder + _WEIGHTS, f"Weights are read from safetensors, or from {_TORCH_WEIGHTS}.")
    return folder + _WEIGHTS


def tensor_shapes(files: ModelFiles, name: str) -> dict[str, tuple[int, ...]]:
    """Shapes of the floating-point tensors in a file, by name.

    Raises:
        MissingFile: the file is not there.
        ModelRefused: it is cut short or holds no header.
    """
    path = files.require(name)
    if not name.endswith(".safetensors"):
        stored = read_torch_file(path, name)
        return {key: tensor.shape for key, tensor in stored.items() if tensor.dtype in _FLOATS}
    try:
        header = _header(path)
    except (struct.error, msgspec.DecodeError, ValueError) as error:
        raise ModelRefused(f"{name}: not a whole safetensors file: {error}", param=name) from error
    return {
        key: tuple(entry["shape"])
        for key, entry in header.items()
        if key != "__metadata__" and entry["dtype"] in _FLOATS
    }


def _header(path: Path) -> dict[str, Any]:
    size_bytes = path.stat().st_size
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > min(_MAX_HEADER_BYTES, size_bytes):
            raise ValueError(f"header of {length} bytes in a file of {size_bytes}")
        header: dict[str, Any] = msgspec.json.decode(stream.read(length), type=dict)
    ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
    if 8 + length + max(ends, default=0) != size_bytes:
        raise ValueError(f"{size_bytes} bytes, {8 + length + max(ends, default=0)} expected")
    return header


def require_shape(file: str, key: str, shapes: Mapping[str, tuple[int, ...]], wanted: tuple[int, ...]) -> None:
    """Raises:
    ModelRefused: the tensor is missing or has another shape.
    """
    if shapes.get(key) != wanted:
        raise refusal(file, key, f"has shape {shapes.get(key)}, but the config says {wanted}.")
