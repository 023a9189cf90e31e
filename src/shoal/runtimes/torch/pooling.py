"""Token states to one vector a text, in float32, equal to sentence-transformers' Pooling case by case.

Works on token states without padding, texts one after another, whatever the encoder's own layout was.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from shoal.catalog.spec import Pooling
from shoal.runtimes.torch.copies import Tensors

__all__ = ["pool"]


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
