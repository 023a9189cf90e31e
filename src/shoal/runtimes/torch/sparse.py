"""Sparse vectors: the vocabulary's logits, pooled over each text (SPLADE), or a weight for each own token (bge-m3).

A token's logits are as many as the vocabulary, so they are made for a bounded number of tokens at a time and pooled at
once: memory does not grow with the batch. The logarithm grows with its logit, so the largest logit is taken first, and
a logarithm of that alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import groupby

import numpy as np
import torch
from torch.nn import functional

from shoal.catalog.spec import Sparse
from shoal.runtimes.base import Arrays, Features
from shoal.runtimes.torch.copies import Fetches, Tensors
from shoal.runtimes.torch.layers import Step
from shoal.runtimes.torch.layout import Ints
from shoal.runtimes.torch.outputs import Collector, Finish, Places, TokenRows

__all__ = ["OwnWeights", "WordWeights"]

_MOST_LOGITS = {"cpu": 1 << 24, "cuda": 1 << 27}
"""Numbers at a time, but for a single token that has more: 64 MiB of float32, 512 MiB."""


class WordWeights:
    """See `outputs.Head`.

    Args:
        head: how logits become weights.
        steps: layers over each token's state, in the encoder's number format.
        decoder: [vocabulary, hidden] in the same.
        bias: [vocabulary] in the same.
    """

    name = "sparse"

    def __init__(self, head: Sparse, steps: list[Step], decoder: torch.Tensor, bias: torch.Tensor) -> None:
        self._head = head
        self._steps = steps
        self._decoder = decoder
        self._bias = bias
        self._most_tokens = max(1, _MOST_LOGITS[decoder.device.type] // decoder.shape[0])

    def compute(self, states: torch.Tensor, part: Tensors) -> torch.Tensor:
        """Token states as they are: what follows depends on how many weights are above zero."""
        return states

    def collector(self, features: Features, fetches: Fetches) -> Collector:
        return _Entries(self, features.num_items, fetches)

    def weights(self, states: torch.Tensor) -> torch.Tensor:
        """States [n, length, hidden] of texts of one length to float32 [n, vocabulary]."""
        most = max(1, self._most_tokens // states.shape[0])
        combine = torch.maximum if self._head.pooling == "max" else torch.add
        pooled = reduce(combine, (self._pooled(piece) for piece in torch.split(states, most, 1)))
        return self._logarithms(pooled.float()) if self._head.pooling == "max" else pooled

    def chunks(self, states: torch.Tensor, lengths: Ints) -> list[torch.Tensor]:
        """The states of a forward cut into texts of one length, as many as may be looked at together."""
        chunks: list[torch.Tensor] = []
        start = 0
        for length, group in groupby(lengths.tolist()):
            count = len(list(group))
            alike = states[start : start + count * length].view(count, length, -1)
            chunks += torch.split(alike, max(1, self._most_tokens // length))
            start += count * length
        return chunks

    def _pooled(self, states: torch.Tensor) -> torch.Tensor:
        x = states
        for step in self._steps:
            x = step(x)
        logits = functional.linear(x, self._decoder, self._bias)
        return logits.amax(1) if self._head.pooling == "max" else self._logarithms(logits.float()).sum(1)

    def _logarithms(self, logits: torch.Tensor) -> torch.Tensor:
        x = logits.relu()
        for _ in range(self._head.num_logarithms):
            x = x.log1p()
        return x


class _Entries:
    """Weights above zero, chunk by chunk."""

    def __init__(self, head: WordWeights, num_items: int, fetches: Fetches) -> None:
        self._head = head
        self._num_items = num_items
        self._fetches = fetches
        self._parts: list[tuple[Places, list[torch.Tensor]]] = []

    def take(self, computed: torch.Tensor, items: Places, lengths: Ints) -> None:
        start = 0
        for chunk in self._head.chunks(computed, lengths):
            weights = self._head.weights(chunk)
            rows, words = weights.nonzero(as_tuple=True)
            found = (torch.bincount(rows, minlength=len(weights)), words.int(), weights[rows, words])
            self._parts.append((items[start : start + len(weights)], [self._fetches.start(one) for one in found]))
            start += len(weights)

    def arrays(self) -> Arrays:
        lengths = np.zeros(self._num_items, np.int32)
        for items, (counts, _, _) in self._parts:
            lengths[items] = counts.numpy()
        begins = np.cumsum(lengths, dtype=np.int64) - lengths
        indices, values = np.empty(int(lengths.sum()), np.int32), np.empty(int(lengths.sum()), np.float32)
        for items, (_, words, weights) in self._parts:
            mine = lengths[items].astype(np.int64)
            places = np.arange(int(mine.sum())) + np.repeat(begins[items] - (np.cumsum(mine) - mine), mine)
            indices[places], values[places] = words.numpy(), weights.numpy()
        return {"sparse.lengths": lengths, "sparse.indices": indices, "sparse.values": values}


class OwnWeights:
    """See `outputs.Head`: a weight for each of a text's own tokens, the largest one of a token that comes twice.

    Args:
        finish: token states to weights [total, 1].
        excluded_ids: tokens that have none.
    """

    name = "sparse"

    def __init__(self, finish: Finish, excluded_ids: Sequence[int]) -> None:
        self.compute = finish
        self._excluded_ids = np.array(excluded_ids, np.int32)

    def collector(self, features: Features, fetches: Fetches) -> Collector:
        return _Largest(features.token_ids, self._excluded_ids, TokenRows(features, 1, fetches))


class _Largest:
    def __init__(self, token_ids: Ints, excluded_ids: Ints, tokens: TokenRows) -> None:
        self._token_ids = token_ids
        self._excluded_ids = excluded_ids
        self._tokens = tokens
        self.take = tokens.take

    def arrays(self) -> Arrays:
        weights, num_items = self._tokens.rows()[:, 0], len(self._tokens.lengths)
        counts = (weights > 0) & ~np.isin(self._token_ids, self._excluded_ids)
        items = np.repeat(np.arange(num_items), self._tokens.lengths)[counts]
        ids, weights = self._token_ids[counts], weights[counts]
        order = np.lexsort((-weights, ids, items))
        items, ids, weights = items[order], ids[order], weights[order]
        is_first = np.ones(len(ids), np.bool_)
        is_first[1:] = (np.diff(ids) != 0) | (np.diff(items) != 0)
        lengths = np.bincount(items[is_first], minlength=num_items).astype(np.int32)
        return {"sparse.lengths": lengths, "sparse.indices": ids[is_first], "sparse.values": weights[is_first]}
