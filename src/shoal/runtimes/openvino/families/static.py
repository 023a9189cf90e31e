"""Static embeddings (model2vec): a row of a table for each token, and nothing that looks at its neighbours."""

from __future__ import annotations

from typing import Any

from openvino import opset15 as ops

from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node, constant
from shoal.runtimes.openvino.weights import Weights

__all__ = ["encode"]


def encode(config: dict[str, Any], weights: Weights, inputs: Inputs) -> Node:
    """Token states: the table's rows."""
    table = weights.take(config["table"], (config["vocab_size"], config["hidden_size"]))
    return ops.gather(constant(table), inputs.token_ids, constant(0))
