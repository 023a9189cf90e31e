"""Older spellings of config.json in the words of transformers 5: `rope_parameters` and `layer_types`.

What was understood is taken out or rewritten; what was not stays, to be refused. Knows no family.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.catalog.files import refusal

__all__ = ["FULL", "SLIDING", "alternating_layers", "one_rope", "require_heads", "rope_per_layer_type", "whole_number"]

FULL, SLIDING = "full_attention", "sliding_attention"

Config = dict[str, Any]

_ROPE_KEYS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""Kinds of rotary positions, and the numbers that each needs besides rope_theta."""


def one_rope(file: str, config: Config, default_theta: float = 10_000.0) -> None:
    """Rotary positions that all layers share: `rope_parameters`, or `rope_theta` and `rope_scaling` before that."""
    scaling, stated = config.pop("rope_scaling", None), config.pop("rope_parameters", None)
    theta = config.pop("rope_theta", None)
    rope = {"rope_theta": default_theta if theta is None else theta, **(scaling or stated or {})}
    config["rope_parameters"] = _checked(file, "rope_parameters", rope, config.get("max_position_embeddings"))


def rope_per_layer_type(file: str, config: Config, older: dict[str, tuple[str, float]]) -> None:
    """Rotary positions by kind of layer.

    Args:
        older: kind of layer to (the key that once held its theta, the default theta).
    """
    stated = config.pop("rope_parameters", None) or {}
    if config.pop("rope_scaling", None):
        raise refusal(file, "rope_scaling", "is set, which is not understood beside two kinds of layers.")
    if not isinstance(stated, dict) or set(stated) - set(older):
        raise refusal(file, "rope_parameters", f"is {stated!r}; it must be about {', '.join(older)}.")
    complete = {}
    for kind, (key, default_theta) in older.items():
        theta = config.pop(key, default_theta)
        rope = {"rope_theta": theta, **(stated.get(kind) or {})}
        complete[kind] = _checked(file, f"rope_parameters.{kind}", rope, config.get("max_position_embeddings"))
    config["rope_parameters"] = complete


def _checked(file: str, key: str, rope: Config, max_positions: Any) -> Config:
    """{"rope_type", "rope_theta", ...}, every entry understood."""
    if not isinstance(rope, dict):
        raise refusal(file, key, f"is {rope!r}; it must be an object.")
    older = rope.pop("type", "default")
    kind = rope.pop("rope_type", older)
    if kind not in _ROPE_KEYS:
        raise refusal(file, f"{key}.rope_type", f"is {kind!r}; understood: {', '.join(_ROPE_KEYS)}.")
    if kind == "llama3":
        rope.setdefault("original_max_position_embeddings", max_positions)
    if rope.pop("partial_rotary_factor", None) not in (None, 1.0):
        raise refusal(file, f"{key}.partial_rotary_factor", "is not 1, which is not understood.")
    wanted = ("rope_theta", *_ROPE_KEYS[kind])
    for name in wanted:
        if not isinstance(rope.get(name), int | float) or rope[name] <= 0:
            raise refusal(file, f"{key}.{name}", f"is {rope.get(name)!r}; it must be a number above 0.")
    for name in rope:
        if name not in wanted:
            raise refusal(file, f"{key}.{name}", f"is not known for rotary positions of type {kind!r}.")
    return {"rope_type": kind, **rope}


def alternating_layers(file: str, config: Config, num_layers: int, rule: Callable[[int], str]) -> None:
    """`layer_types`: which layers see the whole text and which a window; by `rule` if the file does not list them.

    Args:
        num_layers: default of `num_hidden_layers`.
        rule: the kind of layer i.
    """
    num_layers = whole_number(file, config, "num_hidden_layers", num_layers)
    types = config.get("layer_types")
    if types is None:
        types = [rule(i) for i in range(num_layers)]
    if not isinstance(types, list) or len(types) != num_layers or not all(kind in (FULL, SLIDING) for kind in types):
        raise refusal(file, "layer_types", f"is {types!r}; it must name {FULL} or {SLIDING} for {num_layers} layers.")
    config["layer_types"] = types


def require_heads(file: str, config: Config, *, hidden: int, heads: int, key_heads: int, head_dim: int = 0) -> None:
    """`num_key_value_heads` and `head_dim`, where they follow from others; heads must share keys evenly.

    Args:
        hidden, heads, key_heads, head_dim: defaults; `key_heads` 0 = as many as heads, `head_dim` 0 = hidden / heads.
    """
    heads = whole_number(file, config, "num_attention_heads", heads)
    if "num_key_value_heads" in config and config["num_key_value_heads"] is None:
        key_heads = 0
    key_heads = whole_number(file, config, "num_key_value_heads", key_heads or heads)
    hidden = whole_number(file, config, "hidden_size", hidden)
    size = whole_number(file, config, "head_dim", head_dim or max(1, hidden // heads))
    if heads % key_heads:
        raise refusal(file, "num_key_value_heads", f"is {key_heads}, which does not divide {heads} attention heads.")
    if size % 2:
        raise refusal(file, "head_dim", f"is {size}, and rotary positions need an even number.")
    config.update(num_key_value_heads=key_heads, head_dim=size)


def whole_number(file: str, config: Config, key: str, default: int) -> int:
    """A key's number, at least 1.

    Raises:
        ModelRefused: it is something else.
    """
    value = default if config.get(key) is None else config[key]
    if type(value) is not int or value < 1:
        raise refusal(file, key, f"is {value!r}; it must be a whole number above 0.")
    return value
