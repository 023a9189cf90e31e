"""Llama, Mistral, Qwen2, Qwen3 as encoders: one graph; they differ in biases, norms of heads, and who looks where."""

from __future__ import annotations

from typing import Any

from openvino import opset15 as ops

from shoal.runtimes.openvino import layers
from shoal.runtimes.openvino.grouped import Grouped, attend, gated
from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node
from shoal.runtimes.openvino.rope import rotation
from shoal.runtimes.openvino.weights import Weights

__all__ = ["encode_llama", "encode_mistral", "encode_qwen2", "encode_qwen3"]

Config = dict[str, Any]


def encode_llama(config: Config, weights: Weights, inputs: Inputs) -> Node:
    """Llama: biases everywhere or nowhere."""
    has_bias, kinds = config["attention_bias"], ["full_attention"] * config["num_hidden_layers"]
    attention = _attention(config, query_bias=has_bias, output_bias=has_bias)
    return _encode(config, weights, inputs, attention, kinds, mlp_bias=config["mlp_bias"])


def encode_mistral(config: Config, weights: Weights, inputs: Inputs) -> Node:
    """Mistral: no biases; every layer has a window, or none has."""
    return _encode(config, weights, inputs, _attention(config), config["layer_types"])


def encode_qwen2(config: Config, weights: Weights, inputs: Inputs) -> Node:
    """Qwen2: biases on query, key and value only."""
    return _encode(config, weights, inputs, _attention(config, query_bias=True), config["layer_types"])


def encode_qwen3(config: Config, weights: Weights, inputs: Inputs) -> Node:
    """Qwen3: each head's query and key are normalised."""
    has_bias = config["attention_bias"]
    attention = _attention(
        config, query_bias=has_bias, output_bias=has_bias, norm_epsilon=float(config["rms_norm_eps"])
    )
    return _encode(config, weights, inputs, attention, config["layer_types"])


def _attention(config: Config, **options: Any) -> Grouped:
    size = config["head_dim"]
    heads, key_heads = config["num_attention_heads"], config["num_key_value_heads"]
    return Grouped(config["hidden_size"], heads, key_heads, size, size**-0.5, **options)


def _encode(
    config: Config, weights: Weights, inputs: Inputs, attention: Grouped, kinds: list[str], *, mlp_bias: bool = False
) -> Node:
    hidden, inner, epsilon = config["hidden_size"], config["intermediate_size"], config["rms_norm_eps"]
    masks = _masks(config, kinds, inputs)
    turns = rotation(config["rope_parameters"], config["head_dim"], inputs)
    x = layers.embedding(inputs.token_ids, weights, "embed_tokens", config["vocab_size"], hidden)
    for i, kind in enumerate(kinds):
        here = weights.under(f"layers.{i}.")
        y = layers.rms_norm(x, here, "input_layernorm", hidden, epsilon)
        x = ops.add(x, attend(y, here.under("self_attn."), masks[kind], turns, attention))
        y = layers.rms_norm(x, here, "post_attention_layernorm", hidden, epsilon)
        act = config["hidden_act"]
        y = gated(y, here.under("mlp."), hidden, inner, act, has_bias=mlp_bias, key="hidden_act")
        x = ops.add(x, y)
    return layers.rms_norm(x, weights, "norm", hidden, epsilon)


def _masks(config: Config, kinds: list[str], inputs: Inputs) -> dict[str, Node]:
    """The mask of each kind of layer. A causal window counts the token itself, the other one does not."""
    is_causal, window = config["is_causal"], config.get("sliding_window", 0)
    reach = {"full_attention": None, "sliding_attention": window - 1 if is_causal else window}
    return {kind: inputs.mask(is_causal=is_causal, reach=reach[kind]) for kind in sorted(set(kinds))}
