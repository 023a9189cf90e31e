"""What each runtime lets a tuner turn. Plain declarations: no inference library is imported to read them.

A value that this machine cannot do is not left out: the runtime refuses it, and the refusal is a trial's outcome.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Knob", "knobs_of"]


class Knob(msgspec.Struct, frozen=True):
    """Something that may be turned.

    Attributes:
        name: a setting of the worker, or an option of the runtime.
        values: what it may be instead of its default, plainest first.
        meaning: one sentence.
    """

    name: str
    values: tuple[Any, ...]
    meaning: str


def knobs_of(runtime: str, num_cores: int) -> tuple[Knob, ...]:
    """The knobs of a runtime on a machine with so many cores; none for a runtime that declares none."""
    threads = Knob("threads", _threads(num_cores), "Threads of one inference; the default takes all cores.")
    match runtime:
        case "openvino":
            return (
                Knob(
                    "precision",
                    ("float32", "bfloat16", "int8_weights", "int8"),
                    "Number format; int8 quantises activations as well, as they come.",
                ),
                threads,
                Knob("streams", (2,), "Inferences at the same time, the threads shared between them."),
                Knob("run_tokens", (256, 1024, 2048), "Most tokens of one inference, a thread; the default is 512."),
                Knob("layout", ("padded",), "One text a row instead of several."),
            )
        case "torch":
            return (
                Knob("precision", ("float32", "bfloat16", "float16"), "Number format."),
                threads,
                Knob("layout", ("packed", "padded"), "Whether several texts lie in one row."),
                Knob("forward_tokens", (1024, 8192, 65536), "Most tokens of one forward."),
                Knob("graph_tokens", (256, 1024), "Batches of up to so many tokens are replayed as CUDA graphs."),
            )
        case "fake":
            return (
                Knob("a_s", (0.0, 0.005, 0.02), "Seconds that a batch takes on a device that is not there."),
                Knob("c_s", (0.0, 1e-5, 1e-4), "Seconds a token takes on it."),
            )
    return ()


def _threads(num_cores: int) -> tuple[int, ...]:
    """1, 2, 4, ... and all but one, below the number of cores."""
    powers = [1 << step for step in range(num_cores.bit_length()) if 1 << step < num_cores]
    return tuple(sorted({*powers, max(1, num_cores - 1)} - {num_cores}))
