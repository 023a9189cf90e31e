"""Static embeddings (model2vec) in the form of a transformers encoder: a table; no token looks at its neighbours."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from shoal.catalog.spec import ModelSpec
from shoal.runtimes.openvino.weights import open_weights

__all__ = ["StaticTable", "load_static"]


class StaticTable(torch.nn.Module):
    """What `encoder.Encoder` asks of a model."""

    _supports_attention_backend = True

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.table: torch.nn.Embedding = torch.nn.Embedding.from_pretrained(table)  # type: ignore[no-untyped-call]
        self.device, self.dtype = table.device, table.dtype
        self.config = SimpleNamespace(hidden_size=table.shape[1], pad_token_id=None, _attn_implementation="none")
        self.config.get_text_config = lambda encoder: self.config

    def get_input_embeddings(self) -> torch.nn.Embedding:
        return self.table

    def set_attn_implementation(self, name: str) -> None:
        self.config._attn_implementation = name

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, position_ids: object = None
    ) -> SimpleNamespace:
        """Rows of the table: [rows, width, hidden]."""
        return SimpleNamespace(last_hidden_state=self.table(input_ids))


def load_static(spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> StaticTable:
    """The table on the device.

    Raises:
        ModelRefused: the file does not hold it, or holds something else.
    """
    weights, config = open_weights(spec.weights), spec.config
    table = torch.from_numpy(weights.take(config["table"], (config["vocab_size"], config["hidden_size"])))
    weights.refuse_unused(())
    return StaticTable(table.to(device, dtype)).eval().requires_grad_(False)
