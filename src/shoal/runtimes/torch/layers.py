"""Layers of heads that lie behind an encoder in its own weight files, and other tensors of these files."""

from __future__ import annotations

from collections.abc import Callable

import torch
from safetensors import safe_open
from torch.nn import functional
from transformers.activations import ACT2FN

from shoal.catalog.spec import HeadLayer, ModelSpec
from shoal.errors import ModelRefused

__all__ = ["Step", "load_layers", "load_tensor"]

Step = Callable[[torch.Tensor], torch.Tensor]


def load_layers(spec: ModelSpec, layers: tuple[HeadLayer, ...], device: torch.device, dtype: torch.dtype) -> list[Step]:
    """What each layer does, its weights on the device.

    Raises:
        ModelRefused: weights are missing.
    """
    return [_load_layer(spec, layer, device, dtype) for layer in layers]


def _load_layer(spec: ModelSpec, layer: HeadLayer, device: torch.device, dtype: torch.dtype) -> Step:
    def tensor(name: str) -> torch.Tensor:
        return load_tensor(spec, name).to(device, dtype)

    weight = tensor(f"{layer.name}.weight")
    if layer.rows:
        weight = weight[list(layer.rows)]
    bias = tensor(f"{layer.name}.bias") if layer.has_bias else None
    scale = tensor(f"{layer.norm}.weight") if layer.norm else None
    shift = tensor(f"{layer.norm}.bias") if layer.norm and layer.norm_has_bias else None
    activation: Step = torch.nn.Identity() if layer.activation == "identity" else ACT2FN[layer.activation]

    def run(x: torch.Tensor) -> torch.Tensor:
        y = activation(functional.linear(x, weight, bias))
        return y if scale is None else functional.layer_norm(y, scale.shape, scale, shift, layer.norm_epsilon)

    return run


def load_tensor(spec: ModelSpec, name: str) -> torch.Tensor:
    """A tensor of the model's files.

    Raises:
        ModelRefused: it is missing.
    """
    for file in spec.weights:
        with safe_open(file, "pt") as tensors:
            for stored in (name, *_older(name)):
                if stored in tensors.keys():  # noqa: SIM118 - it is no dict
                    tensor: torch.Tensor = tensors.get_tensor(stored)
                    return tensor
    raise ModelRefused(f"{', '.join(spec.weights)}: tensor {name} is missing.")


def _older(name: str) -> list[str]:
    """What files that were made of TensorFlow's call a norm's weight and bias."""
    renamed = [(".LayerNorm.weight", ".LayerNorm.gamma"), (".LayerNorm.bias", ".LayerNorm.beta")]
    return [name.removesuffix(new) + old for new, old in renamed if name.endswith(new)]
