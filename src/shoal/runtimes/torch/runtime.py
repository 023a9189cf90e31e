"""Loading a model with torch: which device, which number format, which layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from shoal.catalog.spec import ModelSpec, Pooling
from shoal.errors import ModelRefused
from shoal.runtimes.base import Footprint, RuntimeOptions, SessionFacts
from shoal.runtimes.footprint import footprint
from shoal.runtimes.torch.attention import has_varlen_kernel
from shoal.runtimes.torch.capability import try_packed
from shoal.runtimes.torch.copies import Tensors
from shoal.runtimes.torch.encoder import Encoder
from shoal.runtimes.torch.graphs import Graphs, cuda_recorder
from shoal.runtimes.torch.heads import load_heads
from shoal.runtimes.torch.load import load_encoder
from shoal.runtimes.torch.options import Choices, choose_device, choose_dtype, read_choices
from shoal.runtimes.torch.outputs import Head
from shoal.runtimes.torch.session import TorchSession

__all__ = ["TorchRuntime"]

_FORWARD_TOKENS = {"cuda": 32768, "cpu": 4096}
"""On a CPU, larger forwards are no faster, and their activations leave the cache."""


class TorchRuntime:
    """torch and transformers, on CUDA if there is one, else on the CPU."""

    name = "torch"

    def footprint(self, spec: ModelSpec, options: RuntimeOptions) -> Footprint:
        """See `base.Runtime.footprint`."""
        device = choose_device(read_choices(options).device)
        number_bytes = choose_dtype(options.precision, device).itemsize
        total = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
        found = footprint(spec, number_bytes, total)
        return msgspec.structs.replace(found, device=_device_name(device), version=str(torch.__version__))

    def load(self, spec: ModelSpec, options: RuntimeOptions) -> TorchSession:
        """See `base.Runtime.load`; `options.extra` as `options.Choices`.

        Raises:
            MemoryError: the weights do not fit on the device.
        """
        choices = read_choices(options)
        device = choose_device(choices.device)
        dtype = choose_dtype(options.precision, device)
        if options.num_threads:
            torch.set_num_threads(options.num_threads)
        try:
            return self._load(spec, choices, device, dtype, options.num_threads)
        except torch.OutOfMemoryError as error:
            message = f"Model {spec.id} does not fit on {device}: {error}"
        torch.cuda.empty_cache()  # outside of the handler, whose traceback holds what was allocated
        raise MemoryError(message)

    def _load(
        self, spec: ModelSpec, choices: Choices, device: torch.device, dtype: torch.dtype, num_threads: int
    ) -> TorchSession:
        encoder = Encoder(load_encoder(spec, device, dtype))
        max_length = spec.tokenization.max_length
        hides_tokens = spec.multivector is not None and spec.multivector.hides_expansion
        is_packed = choices.layout != "padded" and try_packed(encoder, max_length, hides_tokens=hides_tokens)
        if choices.layout == "packed" and not is_packed:
            raise ModelRefused(f"Option layout is 'packed', but {spec.family} models only run padded.")
        heads = load_heads(spec, encoder)
        pooling = spec.modules[0] if spec.modules else None
        return TorchSession(
            encoder,
            heads,
            _graphs(encoder, heads, choices.graph_tokens),
            max_length=max_length,
            includes_prompt=not isinstance(pooling, Pooling) or pooling.include_prompt,
            forward_tokens=choices.forward_tokens or _FORWARD_TOKENS[device.type],
            num_threads=num_threads,
            facts=SessionFacts(
                runtime=self.name,
                version=str(torch.__version__),
                device=_device_name(device),
                precision=str(dtype).removeprefix("torch."),
                bytes_in_use=_bytes(encoder.model),
                outputs=tuple(head.name for head in heads),
                layout="packed" if is_packed else "padded",
            ),
        )


def _graphs(encoder: Encoder, heads: Sequence[Head], max_tokens: int) -> Graphs | None:
    if not max_tokens:
        return None
    if not encoder.is_packed or not has_varlen_kernel(encoder.device, encoder.dtype):
        raise ModelRefused(
            f"Option graph_tokens is {max_tokens}, but CUDA graphs need a packed layout and torch's varlen kernel.",
            hint="They work on CUDA in bfloat16 or float16, from torch 2.11 on, for models that run packed.",
        )

    def forward(part: Tensors, longest: int) -> Tensors:
        states = encoder.states(part, 0, longest)
        return {head.name: head.compute(states, part) for head in heads}

    with torch.inference_mode():
        return Graphs(
            forward,
            max_tokens,
            encoder.padding_id,
            encoder.device,
            cuda_recorder(encoder.device),
        )


def _bytes(model: Any) -> int:
    tensors = {tensor.data_ptr(): tensor for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
