"""What a model gives besides token states: a head for each output that its spec has."""

from __future__ import annotations

import torch

from shoal.catalog.spec import Classifier, ModelSpec, Pooling, Sparse
from shoal.errors import ModelRefused
from shoal.runtimes.torch.copies import Tensors
from shoal.runtimes.torch.encoder import Encoder
from shoal.runtimes.torch.layers import load_layers, load_tensor
from shoal.runtimes.torch.modules import load_modules, pool
from shoal.runtimes.torch.outputs import Finish, Head, PerText
from shoal.runtimes.torch.sparse import WordWeights

__all__ = ["load_heads"]


def load_heads(spec: ModelSpec, encoder: Encoder) -> list[Head]:
    """The heads of a model, their weights on the encoder's device.

    Raises:
        ModelRefused: a head's weights are missing or do not fit, or there is no head at all.
    """
    heads: list[Head] = []
    if spec.modules:
        heads.append(PerText("dense", spec.dimensions, load_modules(spec, _hidden_size(encoder), encoder.device)))
    if spec.classifier is not None:
        finish = _classifier(spec, spec.classifier, encoder.device)
        heads.append(PerText("logits", len(spec.classifier.labels), finish))
    if isinstance(spec.sparse, Sparse):
        heads.append(_word_weights(spec, spec.sparse, encoder))
    if not heads:
        raise ModelRefused(f"{spec.directory}: the model has no output.")
    return heads


def _hidden_size(encoder: Encoder) -> int:
    """Width of the token states."""
    return int(encoder.model.config.get_text_config(encoder=True).hidden_size)


def _classifier(spec: ModelSpec, head: Classifier, device: torch.device) -> Finish:
    """Token states to logits [n, labels], in float32."""
    pooling = Pooling((head.pooling,))
    steps = load_layers(spec, head.layers, device, torch.float32)

    def finish(states: torch.Tensor, part: Tensors) -> torch.Tensor:
        x = pool(states.float(), part, pooling)
        for step in steps:
            x = step(x)
        return x

    return finish


def _word_weights(spec: ModelSpec, head: Sparse, encoder: Encoder) -> WordWeights:
    """In the encoder's number format, as the vocabulary's logits are a good part of the whole work."""
    tied = dict(encoder.model.named_parameters()).get(head.decoder.removeprefix(spec.weights_prefix))
    decoder = load_tensor(spec, head.decoder) if tied is None else tied
    bias = load_tensor(spec, head.bias)
    return WordWeights(
        head,
        load_layers(spec, head.layers, encoder.device, encoder.dtype),
        *(tensor.to(encoder.device, encoder.dtype) for tensor in (decoder, bias)),
    )
