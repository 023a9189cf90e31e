"""Layers of heads: their weights from the model's own files, on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch.nn import functional
from transformers.activations import ACT2FN

from shoal.catalog.spec import Dense, HeadLayer, Module, Normalize
from shoal.errors import ModelRefused
from shoal.runtimes.openvino.weights import Weights, open_weights

__all__ = ["Step", "load_layers", "load_modules", "run_steps"]

Step = Callable[[torch.Tensor], torch.Tensor]
"""From the last axis to the last axis."""


def run_steps(x: torch.Tensor, steps: Sequence[Step]) -> torch.Tensor:
    """One after the other."""
    for step in steps:
        x = step(x)
    return x


def load_layers(
    weights: Weights, layers: Sequence[HeadLayer], device: torch.device, dtype: torch.dtype = torch.float32
) -> list[Step]:
    """Layers that lie in the encoder's own files.

    Raises:
        ModelRefused: weights are missing.
    """
    return [_load_layer(weights, layer, device, dtype) for layer in layers]


def _load_layer(weights: Weights, layer: HeadLayer, device: torch.device, dtype: torch.dtype) -> Step:
    def tensor(name: str, num_axes: int = 1) -> torch.Tensor:
        return torch.from_numpy(weights.take(name, (-1,) * num_axes)).to(device, dtype)

    weight = tensor(f"{layer.name}.weight", 2)
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


def load_modules(modules: Sequence[Module], size: int, directory: str, device: torch.device) -> list[Step]:
    """Dense and Normalize over `size` numbers, in float32.

    Raises:
        ModelRefused: a module is a Pooling, or a Dense does not fit or lacks its weights.
    """
    steps: list[Step] = []
    for module in modules:
        if isinstance(module, Dense):
            steps.append(_load_dense(module, size, directory, device))
            size = module.out_features
        elif isinstance(module, Normalize):
            steps.append(lambda x: functional.normalize(x, dim=-1))
        else:
            raise ModelRefused(f"{directory}/modules.json: a second Pooling is not understood.")
    return steps


def _load_dense(module: Dense, size: int, directory: str, device: torch.device) -> Step:
    file = Path(directory) / module.weights_file
    if module.in_features != size:
        raise ModelRefused(f"{file}: in_features is {module.in_features}, but the module before gives {size}.")
    weights, name = open_weights([file]), module.name and f"{module.name}."
    weight = torch.from_numpy(weights.take(f"{name}weight", (module.out_features, size))).to(device)
    bias = None
    if module.has_bias:
        bias = torch.from_numpy(weights.take(f"{name}bias", (module.out_features,))).to(device)
    if module.is_alone:
        weights.refuse_unused(())
    activation = _ACTIVATIONS[module.activation]
    return lambda x: activation(functional.linear(x, weight, bias))


_ACTIVATIONS: dict[str, Step] = {
    "identity": lambda x: x,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": functional.gelu,
    "sigmoid": torch.sigmoid,
}
