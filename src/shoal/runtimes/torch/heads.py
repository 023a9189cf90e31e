"""What a model gives besides token states: a head for each output that its spec has."""

from __future__ import annotations

import torch

from shoal.catalog.spec import ModelSpec, Pooling, PoolingMode, Sparse, TokenWeights
from shoal.errors import ModelRefused
from shoal.runtimes.openvino.weights import Weights, open_weights
from shoal.runtimes.torch.encoder import Encoder
from shoal.runtimes.torch.layers import Step, load_layers, load_modules, run_steps
from shoal.runtimes.torch.outputs import Finish, Head, PerText, PerToken
from shoal.runtimes.torch.pooling import pool
from shoal.runtimes.torch.sparse import OwnWeights, WordWeights

__all__ = ["load_heads"]


def load_heads(spec: ModelSpec, encoder: Encoder) -> list[Head]:
    """The heads of a model, their weights on the encoder's device.

    Raises:
        ModelRefused: a head's weights are missing or do not fit, or there is no head at all.
    """
    hidden = int(encoder.model.config.get_text_config(encoder=True).hidden_size)
    weights, device = open_weights(spec.weights), encoder.device
    heads: list[Head] = []
    if spec.modules:
        heads.append(PerText("dense", spec.dimensions, _vectors(spec, hidden, device)))
    if spec.classifier is not None:
        steps = load_layers(weights, spec.classifier.layers, device)
        heads.append(PerText("logits", len(spec.classifier.labels), _pooled(spec.classifier.pooling, steps)))
    if isinstance(spec.sparse, Sparse):
        heads.append(_word_weights(spec, spec.sparse, weights, encoder))
    if isinstance(spec.sparse, TokenWeights):
        steps = load_modules([spec.sparse.layer], hidden, spec.directory, device)
        heads.append(OwnWeights(_of_tokens(steps), spec.sparse.excluded_ids))
    if spec.multivector is not None:
        steps = load_modules(spec.multivector.modules, hidden, spec.directory, device)
        heads.append(PerToken("multivector.rows", spec.multivector.dimensions, _of_tokens(steps)))
    if spec.tagger is not None:
        steps = load_layers(weights, spec.tagger.layers, device)
        heads.append(PerToken("tags.logits", len(spec.tagger.labels), _of_tokens(steps)))
    if not heads:
        raise ModelRefused(f"{spec.directory}: the model has no output.")
    return heads


def _vectors(spec: ModelSpec, hidden: int, device: torch.device) -> Finish:
    """Pooling and the modules that follow it: token states to [n, dimensions]."""
    pooling, *others = spec.modules
    if not isinstance(pooling, Pooling):
        raise ModelRefused(f"{spec.directory}/modules.json: the module after the encoder must be a Pooling.")
    steps = load_modules(others, hidden * len(pooling.modes), spec.directory, device)
    return lambda states, part: run_steps(pool(states.float(), part, pooling), steps)


def _pooled(mode: PoolingMode, steps: list[Step]) -> Finish:
    """Layers over one state a text: token states to [n, labels]."""
    pooling = Pooling((mode,))
    return lambda states, part: run_steps(pool(states.float(), part, pooling), steps)


def _of_tokens(steps: list[Step]) -> Finish:
    """Layers over each token's state: token states to [total, numbers]."""
    return lambda states, part: run_steps(states.float(), steps)


def _word_weights(spec: ModelSpec, head: Sparse, weights: Weights, encoder: Encoder) -> WordWeights:
    """In the encoder's number format, as the vocabulary's logits are a good part of the whole work."""
    place = encoder.device, encoder.dtype
    decoder = dict(encoder.model.named_parameters()).get(head.decoder.removeprefix(spec.weights_prefix))
    if decoder is None:  # not tied to the encoder's own table
        decoder = torch.from_numpy(weights.take(head.decoder, (-1, -1))).to(*place)
    bias = torch.from_numpy(weights.take(head.bias, (-1,))).to(*place)
    return WordWeights(head, load_layers(weights, head.layers, *place), decoder, bias)
