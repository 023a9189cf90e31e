"""What follows the encoder: Pooling, Dense, Normalize, in float32, equal to sentence-transformers case by case.

Works on token states without padding, texts one after another, whatever the encoder's own layout was.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.nn import functional

from shoal.catalog.spec import Dense, ModelSpec, Normalize, Pooling
from shoal.errors import ModelRefused
from shoal.runtimes.torch.copies import Tensors
from shoal.runtimes.torch.outputs import Finish

__all__ = ["load_modules", "pool"]


def load_modules(spec: ModelSpec, hidden: int, device: torch.device) -> Finish:
    """The modules of a model, their weights on the device.

    Raises:
        ModelRefused: the first is not a Pooling, a later one is, or a Dense does not fit or lacks its weights.
    """
    pooling, *others = spec.modules or (None,)
    where = f"{spec.directory}/modules.json"
    if not isinstance(pooling, Pooling):
        raise ModelRefused(f"{where}: the module after the encoder must be a Pooling.")
    size, steps = hidden * len(pooling.modes), []
    for module in others:
        if isinstance(module, Dense):
            steps.append(_load_dense(module, size, spec.directory, device))
            size = module.out_features
        elif isinstance(module, Normalize):
            steps.append(functional.normalize)
        else:
            raise ModelRefused(f"{where}: a second Pooling is not understood.")

    def finish(states: torch.Tensor, part: Tensors) -> torch.Tensor:
        vectors = pool(states.float(), part, pooling)
        for step in steps:
            vectors = step(vectors)
        return vectors

    return finish


def _load_dense(
    module: Dense, size: int, directory: str, device: torch.device
) -> Callable[[torch.Tensor], torch.Tensor]:
    file = Path(directory) / module.weights_file
    if module.in_features != size:
        raise ModelRefused(f"{file}: in_features is {module.in_features}, but the module before gives {size}.")
    tensors = {name: tensor.to(device, torch.float32) for name, tensor in load_file(file).items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    wanted: dict[str, tuple[int, ...]] = {"linear.weight": (module.out_features, size)}
    if module.has_bias:
        wanted["linear.bias"] = (module.out_features,)
    if shapes != wanted:
        raise ModelRefused(f"{file}: holds {shapes}; the module's config says {wanted}.")
    activation = _ACTIVATIONS[module.activation]
    weight, bias = tensors["linear.weight"], tensors.get("linear.bias")
    return lambda vectors: activation(functional.linear(vectors, weight, bias))


_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "identity": lambda x: x,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": functional.gelu,
    "sigmoid": torch.sigmoid,
}


def pool(states: torch.Tensor, part: Tensors, pooling: Pooling) -> torch.Tensor:
    """The modes of `pooling`, concatenated in their order; the part heeds `include_prompt` already."""
    pooled = [_MODES[mode](states, part) for mode in pooling.modes]
    return torch.cat(pooled, -1) if len(pooled) > 1 else pooled[0]


def _total(values: torch.Tensor, part: Tensors) -> torch.Tensor:
    """Sum over each text's tokens: [total, ...] to [n, ...]."""
    return torch.segment_reduce(values, "sum", offsets=part["starts"].long(), unsafe=True, initial=0.0)


def _weighed(states: torch.Tensor, weights: torch.Tensor, part: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum of weighted states [n, hidden], and of weights [n, 1], at least 1e-9."""
    return _total(states * weights[:, None], part), _total(weights[:, None], part).clamp(min=1e-9)


def _mean(states: torch.Tensor, part: Tensors) -> torch.Tensor:
    total, weight = _weighed(states, part["is_counted"].float(), part)
    return total / weight


def _mean_sqrt_len(states: torch.Tensor, part: Tensors) -> torch.Tensor:
    total, weight = _weighed(states, part["is_counted"].float(), part)
    return total / weight.sqrt()


def _weighted_mean(states: torch.Tensor, part: Tensors) -> torch.Tensor:
    total, weight = _weighed(states, part["is_counted"] * (part["index"] + 1).float(), part)
    return total / weight


def _cls(states: torch.Tensor, part: Tensors) -> torch.Tensor:
    """The first token that counts; a text that is all prompt gives its very first."""
    return states[part["pooled_from"]]


def _last_token(states: torch.Tensor, part: Tensors) -> torch.Tensor:
    """The last token; a text that is all prompt gives zeros."""
    last = part["starts"][1:] - 1
    return states[last] * part["is_counted"][last, None]


def _max(states: torch.Tensor, part: Tensors) -> torch.Tensor:
    """Number by number; a text that is all prompt gives minus infinity."""
    counted = states.masked_fill(part["is_counted"][:, None] == 0, -torch.inf)
    return torch.segment_reduce(counted, "max", offsets=part["starts"].long(), unsafe=True, initial=-torch.inf)


_MODES: dict[str, Callable[[torch.Tensor, Tensors], torch.Tensor]] = {
    "cls": _cls,
    "last_token": _last_token,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len": _mean_sqrt_len,
    "weighted_mean": _weighted_mean,
}
