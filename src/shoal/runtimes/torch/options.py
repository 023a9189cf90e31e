"""What the operator may choose of the torch runtime: device, number format, layout and CUDA graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import torch

from shoal.errors import ModelRefused
from shoal.runtimes.base import RuntimeOptions

__all__ = ["Choices", "choose_device", "choose_dtype", "read_choices"]


class Choices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`RuntimeOptions.extra` of this runtime.

    Attributes:
        device: `auto` (CUDA if there is one), `cpu`, `cuda` or `cuda:N`.
        layout: `auto` packs where that gives the model's own vectors; `packed` refuses a model where it does not.
        forward_tokens: most tokens in one forward; 0 = 32,768 on CUDA, 4,096 on CPU.
        graph_tokens: batches of up to so many tokens are replayed as CUDA graphs; 0 = none are.
    """

    device: str = "auto"
    layout: Literal["auto", "packed", "padded"] = "auto"
    forward_tokens: int = 0
    graph_tokens: int = 0


def read_choices(options: RuntimeOptions) -> Choices:
    """The runtime's own options, checked.

    Raises:
        ModelRefused: an unknown option, or a value that is not allowed.
    """
    try:
        choices = msgspec.convert(options.extra, Choices)
    except msgspec.ValidationError as error:
        raise ModelRefused(
            f"Options of the torch runtime are not understood: {error}.",
            hint=f"Options: {', '.join(Choices.__struct_fields__)}.",
        ) from error
    for name in ("forward_tokens", "graph_tokens"):
        if getattr(choices, name) < 0:
            raise ModelRefused(f"Option {name} of the torch runtime is {getattr(choices, name)}; it must be 0 or more.")
    return choices


def choose_device(wanted: str) -> torch.device:
    """The device that an operator's word means.

    Raises:
        ModelRefused: no such device here.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = ["cpu", *(f"cuda:{number}" for number in range(count))]
    name = {"auto": devices[min(1, count)], "cuda": "cuda:0"}.get(wanted, wanted)
    if name not in devices:
        raise ModelRefused(f"Option device of the torch runtime is {wanted!r}; there are {', '.join(devices)}.")
    return torch.device(name)


_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """The number format that a precision means on a device; `auto` is bfloat16 where it is native, else float32.

    Raises:
        ModelRefused: unknown, or not native there.
    """
    is_native = {"float32": True, "bfloat16": _has_bfloat16(device), "float16": device.type == "cuda"}
    if wanted == "auto":
        return torch.bfloat16 if is_native["bfloat16"] else torch.float32
    if wanted not in _DTYPES:
        raise ModelRefused(f"precision is {wanted!r}; allowed: auto, {', '.join(_DTYPES)}.")
    if not is_native[wanted]:
        raise ModelRefused(
            f"precision is {wanted}, which the device {device} does not compute in natively.",
            hint="Use auto or float32.",
        )
    return _DTYPES[wanted]


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        with torch.cuda.device(device):
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    flags = _CPU_FACTS.read_text() if _CPU_FACTS.exists() else ""
    return "avx512_bf16" in flags or "amx_bf16" in flags


_CPU_FACTS = Path("/proc/cpuinfo")
"""torch says only from version 2.12 on what a CPU can do."""
