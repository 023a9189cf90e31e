"""What the operator, or a tuned profile, may choose of the openvino runtime: number format, layout, runs, streams."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from shoal.errors import ModelRefused
from shoal.runtimes.base import RuntimeOptions

__all__ = ["Choices", "choose_precision", "compile_settings", "read_choices"]

_PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "int8_weights": "f32", "int8": "f32"}
"""Number format to the library's hint; with int8, what is not quantised is float32."""

_ACTIVATION_GROUP = 128
"""Inputs of a linear layer that share a scale when activations are quantised as they come."""


class Choices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`RuntimeOptions.extra` of this runtime.

    Attributes:
        layout: `packed` lays several texts into a row, `padded` one.
        run_tokens: most tokens of one inference, a thread.
        streams: inferences at the same time; the threads are shared between them.
    """

    layout: Literal["packed", "padded"] = "packed"
    run_tokens: int = 512
    streams: int = 1


def read_choices(options: RuntimeOptions) -> Choices:
    """The runtime's own options, checked.

    Raises:
        ModelRefused: an unknown option, or a value that is not allowed.
    """
    try:
        choices = msgspec.convert(options.extra, Choices)
    except msgspec.ValidationError as error:
        raise ModelRefused(
            f"Options of the openvino runtime are not understood: {error}.",
            hint=f"Options: {', '.join(Choices.__struct_fields__)}.",
        ) from error
    for name in ("run_tokens", "streams"):
        if getattr(choices, name) < 1:
            raise ModelRefused(f"Option {name} of the openvino runtime is {getattr(choices, name)}; at least 1.")
    return choices


def choose_precision(wanted: str, *, has_bfloat16: bool) -> str:
    """`auto` is bfloat16 where the CPU computes in it natively, else float32.

    Raises:
        ModelRefused: there is no such format, or not on this CPU.
    """
    if wanted == "auto":
        return "bfloat16" if has_bfloat16 else "float32"
    if wanted not in _PRECISIONS:
        raise ModelRefused(f"precision is {wanted!r}; allowed: auto, {', '.join(_PRECISIONS)}.")
    if wanted == "bfloat16" and not has_bfloat16:
        raise ModelRefused(
            "precision is bfloat16, which this CPU does not compute in natively (no AMX, no AVX512-BF16).",
            hint="Use auto or float32.",
        )
    return wanted


def compile_settings(precision: str, num_threads: int, num_streams: int) -> dict[str, Any]:
    """What the library is given to compile a graph."""
    settings = {
        "INFERENCE_PRECISION_HINT": _PRECISIONS[precision],
        "NUM_STREAMS": num_streams,
        # Pinned threads wait for their own core while another is idle; the server's other threads need cores too.
        "ENABLE_CPU_PINNING": False,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": _ACTIVATION_GROUP if precision == "int8" else 0,
    }
    return settings | ({"INFERENCE_NUM_THREADS": num_threads} if num_threads else {})
