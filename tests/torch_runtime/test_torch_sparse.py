"""Sparse vectors of the torch runtime: whatever is computed at a time, the same weights; never much at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.torch_runtime.batches import FLOAT32, options, random_batch

from shoal.catalog import resolve
from shoal.catalog.spec import ModelSpec
from shoal.runtimes.base import Arrays
from shoal.runtimes.torch.graphs import Graphs
from shoal.runtimes.torch.layout import fill, pack
from shoal.runtimes.torch.runtime import TorchRuntime
from shoal.runtimes.torch.session import TorchSession
from shoal.runtimes.torch.sparse import WordWeights
from tiny_heads import TinyHead

LENGTHS = (40, 3, 17, 17, 64, 1, 3, 17)


@pytest.fixture(params=["max", "sum"])
def spec(tiny_head: Callable[[TinyHead], Path], request: pytest.FixtureRequest) -> ModelSpec:
    return resolve(str(tiny_head(TinyHead("bert", "sparse", splade=(("pooling_strategy", request.param),)))))


def head_of(session: TorchSession) -> WordWeights:
    (head,) = session._heads
    assert isinstance(head, WordWeights)
    return head


def assert_same(left: Arrays, right: Arrays) -> None:
    assert left.keys() == right.keys() == {"sparse.lengths", "sparse.indices", "sparse.values"}
    for part in ("sparse.lengths", "sparse.indices"):
        np.testing.assert_array_equal(left[part], right[part])
    np.testing.assert_allclose(left["sparse.values"], right["sparse.values"], atol=1e-5)


def test_logits_are_made_for_few_tokens_at_a_time(runtime: TorchRuntime, spec: ModelSpec) -> None:
    """Memory does not grow with batch x length x vocabulary."""
    session = runtime.load(spec, FLOAT32)
    batch = random_batch(LENGTHS, vocabulary=300)
    expected = session.run(batch)
    head, seen = head_of(session), []
    head._most_tokens, pooled = 13, head._pooled

    def watched(states: torch.Tensor) -> torch.Tensor:
        seen.append(states.shape[0] * states.shape[1])
        return pooled(states)

    head._pooled = watched
    assert_same(session.run(batch), expected)
    assert sum(seen) == sum(LENGTHS)
    assert max(seen) <= 13


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_many_forwards_give_what_one_gives(runtime: TorchRuntime, spec: ModelSpec, layout: str) -> None:
    batch = random_batch(LENGTHS, vocabulary=300)
    whole = runtime.load(spec, options(layout=layout)).run(batch)
    assert_same(runtime.load(spec, options(layout=layout, forward_tokens=48)).run(batch), whole)


def test_a_replayed_forward_gives_the_same(runtime: TorchRuntime, spec: ModelSpec) -> None:
    """On the CPU, where a recording is the function itself; the left-over text behind is not looked at."""
    session = runtime.load(spec, FLOAT32)
    batch, encoder, head = random_batch((9, 5, 5), vocabulary=300), session._encoder, head_of(session)
    expected = session.run(batch)
    with torch.inference_mode():
        session._graphs = Graphs(
            lambda part, longest: {head.name: head.compute(encoder.states(part, 0, longest), part)},
            32,
            encoder.padding_id,
            encoder.device,
            record=lambda run: run,
        )
        (part,) = pack(batch.lengths, 1000)
        assert session._graphs.run(fill(batch, part, encoder.numbering, encoder.padding_id)) is not None
    assert_same(session.run(batch), expected)
