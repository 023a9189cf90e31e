"""Heads other than dense vectors: a label's logits for each text, in float32."""

from __future__ import annotations

from collections.abc import Callable

import torch
from safetensors import safe_open
from torch.nn import functional
from transformers.activations import ACT2FN

from shoal.catalog.spec import Classifier, HeadLayer, ModelSpec, Pooling
from shoal.errors import ModelRefused
from shoal.runtimes.torch.encoder import Tensors
from shoal.runtimes.torch.modules import Finish, pool

__all__ = ["load_classifier"]

Step = Callable[[torch.Tensor], torch.Tensor]


def load_classifier(spec: ModelSpec, head: Classifier, device: torch.device) -> Finish:
    """Token states to logits [n, labels]; the layers' weights on the device.

    Raises:
        ModelRefused: weights are missing.
    """
    pooling = Pooling((head.pooling,))
    steps = [_load_layer(spec, layer, device) for layer in head.layers]

    def finish(states: torch.Tensor, part: Tensors) -> torch.Tensor:
        x = pool(states.float(), part, pooling)
        for step in steps:
            x = step(x)
        return x

    return finish


def _load_layer(spec: ModelSpec, layer: HeadLayer, device: torch.device) -> Step:
    weight = _tensor(spec, f"{layer.name}.weight", device)
    bias = _tensor(spec, f"{layer.name}.bias", device) if layer.has_bias else None
    scale = _tensor(spec, f"{layer.norm}.weight", device) if layer.norm else None
    shift = _tensor(spec, f"{layer.norm}.bias", device) if layer.norm and layer.norm_has_bias else None
    activation: Step = torch.nn.Identity() if layer.activation == "identity" else ACT2FN[layer.activation]

    def run(x: torch.Tensor) -> torch.Tensor:
        y = activation(functional.linear(x, weight, bias))
        return y if scale is None else functional.layer_norm(y, scale.shape, scale, shift, layer.norm_epsilon)

    return run


def _tensor(spec: ModelSpec, name: str, device: torch.device) -> torch.Tensor:
    for file in spec.weights:
        with safe_open(file, "pt") as tensors:
            if name in tensors.keys():  # noqa: SIM118 - it is no dict
                tensor: torch.Tensor = tensors.get_tensor(name)
                return tensor.to(device, torch.float32)
    raise ModelRefused(f"{', '.join(spec.weights)}: tensor {name} is missing.")
