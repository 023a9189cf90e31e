"""Memory of a model: what it will take, from the headers of its files; and giving free memory back to the system."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path

import msgspec

from shoal.catalog.spec import Dense, ModelSpec, TokenWeights
from shoal.catalog.torch_files import read_torch_file
from shoal.errors import ModelRefused
from shoal.runtimes.base import Footprint

__all__ = ["footprint", "release_free_memory"]

_ACTIVE_TOKENS = 2048
"""Tokens whose activations are alive at once, about: more go through in turns."""

_NUMBERS_PER_CHANNEL = 16
"""Numbers alive for each token and channel of its state: itself, the residual, query, key, value, the wide layer."""


class _Tensor(msgspec.Struct):
    """A tensor in a safetensors header; `__metadata__`, the one entry that is none, has no shape."""

    shape: tuple[int, ...] = (0,)


def footprint(spec: ModelSpec, number_bytes: int, device_bytes: int | None = None) -> Footprint:
    """Memory of a model whose weights and activations are numbers of `number_bytes` bytes.

    Raises:
        ModelRefused: a file of weights is missing, or neither safetensors nor tensors saved by torch.
    """
    layers = [*spec.modules, *(spec.multivector.modules if spec.multivector is not None else ())]
    if isinstance(spec.sparse, TokenWeights):
        layers.append(spec.sparse.layer)
    files = {*spec.weights, *(layer.weights_file for layer in layers if isinstance(layer, Dense))}
    num_weights = sum(_num_weights(Path(file)) for file in files)
    width = next((int(spec.config[key]) for key in _WIDTHS if key in spec.config), spec.dimensions)
    active = min(_ACTIVE_TOKENS, max(spec.tokenization.max_length, 512)) * width * _NUMBERS_PER_CHANNEL
    return Footprint(num_weights * number_bytes, active * number_bytes, device_bytes)


_WIDTHS = ("hidden_size", "dim", "d_model", "n_embd")
"""What configurations call the width of a token's state."""


def _num_weights(file: Path) -> int:
    if file.suffix != ".safetensors" and file.is_file():
        return sum(math.prod(tensor.shape) for tensor in read_torch_file(file).values())
    try:
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            header = msgspec.json.decode(stream.read(min(size, 100_000_000)), type=dict[str, _Tensor])
    except FileNotFoundError:
        raise ModelRefused(f"{file} is missing.") from None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise ModelRefused(f"{file} is not a safetensors file: {error}.") from error
    return sum(math.prod(tensor.shape) for tensor in header.values())


def release_free_memory() -> None:
    """Give back to the system what the C library keeps of freed memory; without effect where it is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
