"""Loading a model on the CPU with OpenVINO: which precision, how many threads, and the compilation."""

from __future__ import annotations

from typing import Any

import openvino as ov

from shoal.catalog.spec import ModelSpec
from shoal.errors import ModelRefused
from shoal.runtimes.base import Footprint, RuntimeOptions, SessionFacts
from shoal.runtimes.footprint import footprint
from shoal.runtimes.openvino.graph import build_graph
from shoal.runtimes.openvino.session import OpenVINOSession

__all__ = ["OpenVINORuntime"]

_PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}


class OpenVINORuntime:
    """The CPU, by OpenVINO's own plugin."""

    name = "openvino"

    def __init__(self) -> None:
        self._openvino = ov.Core()

    def footprint(self, spec: ModelSpec, options: RuntimeOptions) -> Footprint:
        """See `base.Runtime.footprint`."""
        number_bytes = {"float32": 4, "bfloat16": 2}[self._precision(options.precision)]
        return footprint(spec, number_bytes)

    def load(self, spec: ModelSpec, options: RuntimeOptions) -> OpenVINOSession:
        """See `base.Runtime.load`. There are no `extra` options."""
        if options.extra:
            raise ModelRefused(f"The openvino runtime has no option {sorted(options.extra)[0]!r}.")
        precision = self._precision(options.precision)
        graph = build_graph(spec)
        compiled = self._openvino.compile_model(graph.model, "CPU", self._settings(precision, options.num_threads))
        facts = SessionFacts(
            runtime=self.name,
            version=ov.get_version(),
            device=self._openvino.get_property("CPU", "FULL_DEVICE_NAME").strip(),
            precision=_name(compiled.get_property("INFERENCE_PRECISION_HINT")),
            bytes_in_use=graph.weight_bytes,
            outputs=tuple(output.get_any_name() for output in compiled.outputs),
        )
        return OpenVINOSession(
            compiled,
            graph.input_names,
            graph.padding_id,
            max_length=_max_length(spec, graph.padding_id),
            vocabulary_size=spec.config["vocab_size"],
            sparse=spec.sparse,
            facts=facts,
        )

    def _precision(self, wanted: str) -> str:
        """`float32` or `bfloat16`."""
        is_native = "BF16" in self._openvino.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        if wanted == "auto":
            return "bfloat16" if is_native else "float32"
        if wanted not in _PRECISIONS:
            raise ModelRefused(f"precision is {wanted!r}; allowed: auto, {', '.join(_PRECISIONS)}.")
        if wanted == "bfloat16" and not is_native:
            raise ModelRefused(
                "precision is bfloat16, which this CPU does not compute in natively (no AMX, no AVX512-BF16).",
                hint="Use auto or float32.",
            )
        return wanted

    def _settings(self, precision: str, num_threads: int) -> dict[str, Any]:
        settings = {
            "INFERENCE_PRECISION_HINT": _PRECISIONS[precision],
            "NUM_STREAMS": 1,
            # Pinned threads wait for their own core while another is idle; the server's other threads need cores too.
            "ENABLE_CPU_PINNING": False,
        }
        return settings | ({"INFERENCE_NUM_THREADS": num_threads} if num_threads else {})


def _name(element_type: Any) -> str:
    return {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}[element_type.get_type_name()]


def _max_length(spec: ModelSpec, padding_id: int | None) -> int:
    """Tokens that have a row in the model's position table, or in one that the graph was given."""
    before = 0 if padding_id is None else padding_id + 1
    longest = spec.tokenization.max_length
    return min(longest, int(spec.config.get("max_position_embeddings", longest + before)) - before)
