"""ERNIE: BERT with a table of tasks, of which transformers takes the first for every text."""

from __future__ import annotations

from typing import Any

from shoal.runtimes.openvino.families import bert
from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node, constant
from shoal.runtimes.openvino.weights import Weights

__all__ = ["encode"]


def encode(config: dict[str, Any], weights: Weights, inputs: Inputs) -> Node:
    """ERNIE's token states."""
    tables, task = weights.under("embeddings."), None
    if config["use_task_id"]:
        shape = config["task_type_vocab_size"], config["hidden_size"]
        task = constant(tables.take("task_type_embeddings.weight", shape)[0])
    return bert.run_layers(config, weights, inputs, bert.embed(config, tables, inputs, inputs.positions(), task))
