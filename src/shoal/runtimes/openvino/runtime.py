"""Loading a model on the CPU with OpenVINO: which precision, how many threads, and the compilation."""

from __future__ import annotations

from typing import Any

import msgspec
import openvino as ov

from shoal.catalog.spec import ModelSpec
from shoal.runtimes.base import Footprint, RuntimeOptions, SessionFacts
from shoal.runtimes.footprint import footprint
from shoal.runtimes.openvino.graph import build_graph
from shoal.runtimes.openvino.options import choose_precision, compile_settings, read_choices
from shoal.runtimes.openvino.quantize import quantize_weights
from shoal.runtimes.openvino.session import OpenVINOSession

__all__ = ["OpenVINORuntime"]

_NUMBER_BYTES = {"float32": 4, "bfloat16": 2, "int8_weights": 1, "int8": 1}


class OpenVINORuntime:
    """The CPU, by OpenVINO's own plugin."""

    name = "openvino"

    def __init__(self) -> None:
        self._openvino = ov.Core()
        self._device = self._openvino.get_property("CPU", "FULL_DEVICE_NAME").strip()

    def footprint(self, spec: ModelSpec, options: RuntimeOptions) -> Footprint:
        """See `base.Runtime.footprint`."""
        found = footprint(spec, _NUMBER_BYTES[self._precision(options.precision)])
        return msgspec.structs.replace(found, device=self._device, version=ov.get_version())

    def load(self, spec: ModelSpec, options: RuntimeOptions) -> OpenVINOSession:
        """See `base.Runtime.load`; its `extra` options are `options.Choices`."""
        choices = read_choices(options)
        precision = self._precision(options.precision)
        graph = build_graph(spec)
        saved_bytes = quantize_weights(graph.model) if precision.startswith("int8") else 0
        settings = compile_settings(precision, options.num_threads, choices.streams)
        compiled = self._openvino.compile_model(graph.model, "CPU", settings)
        facts = SessionFacts(
            runtime=self.name,
            version=ov.get_version(),
            device=self._device,
            precision=_native(precision, compiled.get_property("INFERENCE_PRECISION_HINT")),
            bytes_in_use=graph.weight_bytes - saved_bytes,
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
            choices=choices,
        )

    def _precision(self, wanted: str) -> str:
        has_bfloat16 = "BF16" in self._openvino.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        return choose_precision(wanted, has_bfloat16=has_bfloat16)


def _native(precision: str, element_type: Any) -> str:
    """The number format that is really computed in; quantised matrices say nothing of the rest."""
    if precision.startswith("int8"):
        return precision
    return {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}[element_type.get_type_name()]


def _max_length(spec: ModelSpec, padding_id: int | None) -> int:
    """Tokens that have a row in the model's position table, or in one that the graph was given."""
    before = 0 if padding_id is None else padding_id + 1
    longest = spec.tokenization.max_length
    return min(longest, int(spec.config.get("max_position_embeddings", longest + before)) - before)
