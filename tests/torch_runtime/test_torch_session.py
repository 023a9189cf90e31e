"""A session's edges: pooling of all-prompt texts, graphs' memory layout, refusals, want of memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Pooling as ReferencePooling
from tests.torch_runtime.batches import FLOAT32, assert_equal, options, random_batch

from shoal.catalog import resolve
from shoal.catalog.spec import ModelSpec, Pooling
from shoal.errors import InvalidRequest
from shoal.runtimes.base import Features
from shoal.runtimes.torch.copies import Tensors
from shoal.runtimes.torch.encoder import Encoder
from shoal.runtimes.torch.graphs import Graphs
from shoal.runtimes.torch.layout import fill, pack
from shoal.runtimes.torch.outputs import Head
from shoal.runtimes.torch.runtime import TorchRuntime

MODES = {
    "cls": "cls",
    "mean": "mean",
    "max": "max",
    "weighted_mean": "weightedmean",
    "last_token": "lasttoken",
    "mean_sqrt_len": "mean_sqrt_len_tokens",
}


@pytest.fixture
def spec(tiny_model: Callable[..., Path]) -> ModelSpec:
    return resolve(str(tiny_model("bert", normalize=False)))


@pytest.mark.parametrize("mode", MODES)
def test_a_text_that_is_all_prompt_equals_the_reference(runtime: TorchRuntime, spec: ModelSpec, mode: str) -> None:
    pooling = Pooling((mode,), include_prompt=False)  # type: ignore[arg-type]
    session = runtime.load(msgspec.structs.replace(spec, modules=(pooling,)), FLOAT32)
    judge = ReferencePooling(spec.dimensions, MODES[mode], include_prompt=False)
    batch = random_batch([4, 3, 8], vocabulary=300, pool_from=4)
    vectors = session.run(batch)["dense"]
    for vector, ids in zip(vectors, np.split(batch.token_ids, [4, 7]), strict=True):
        input_ids = torch.from_numpy(ids.astype(np.int64))[None]
        with torch.inference_mode():
            session._encoder.is_packed = False
            states = session._encoder.model(input_ids=input_ids).last_hidden_state
            session._encoder.is_packed = True
        given = {"token_embeddings": states, "attention_mask": torch.ones_like(input_ids), "prompt_length": 4}
        np.testing.assert_allclose(vector, judge(given)["sentence_embedding"][0].numpy(), atol=1e-5)


def test_an_empty_batch_gives_no_vectors(runtime: TorchRuntime, spec: ModelSpec) -> None:
    nothing = np.zeros(0, np.int32)
    assert runtime.load(spec, FLOAT32).run(Features(nothing, nothing, nothing))["dense"].shape == (0, 32)


def test_token_types_reach_the_model(runtime: TorchRuntime, spec: ModelSpec) -> None:
    batch = random_batch([5, 9], vocabulary=300)
    types = np.array([0] * 3 + [1] * 2 + [0] * 4 + [1] * 5, np.int32)
    typed = Features(batch.token_ids, batch.lengths, batch.pool_from, types)
    packed, padded = (runtime.load(spec, options(layout=layout)) for layout in ("packed", "padded"))
    assert_equal(packed.run(typed)["dense"], padded.run(typed)["dense"])
    assert not np.allclose(packed.run(typed)["dense"], packed.run(batch)["dense"], atol=1e-2)


def test_what_the_model_has_no_row_for_is_refused_and_named(runtime: TorchRuntime, spec: ModelSpec) -> None:
    session = runtime.load(spec, FLOAT32)
    with pytest.raises(InvalidRequest, match="129 tokens; the model takes 128"):
        session.run(random_batch([3, 129], vocabulary=300))
    for wrong in (-1, spec.vocabulary_size):
        batch = random_batch([3], vocabulary=300)
        batch.token_ids[1] = wrong
        with pytest.raises(InvalidRequest, match=f"{wrong} is outside the vocabulary of {spec.vocabulary_size}"):
            session.run(batch)
    assert session.run(random_batch([3], vocabulary=300))["dense"].shape == (1, 32)


def test_want_of_memory_is_told_apart(runtime: TorchRuntime, spec: ModelSpec) -> None:
    session = runtime.load(spec, FLOAT32)

    def want_too_much(states: torch.Tensor, part: Tensors) -> torch.Tensor:
        return torch.empty(1 << 48)

    (head,) = session._heads
    head.compute, compute = want_too_much, head.compute
    batch = random_batch([3, 4], vocabulary=300)
    with pytest.raises(MemoryError, match="7 tokens do not fit on cpu"):
        session.run(batch)
    head.compute = compute
    assert session.run(batch)["dense"].shape == (2, 32)


def test_another_fault_is_not_want_of_memory(runtime: TorchRuntime, spec: ModelSpec) -> None:
    session = runtime.load(spec, FLOAT32)
    session._heads[0].compute = lambda states, part: states @ states[:, :1]
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        session.run(random_batch([3, 4], vocabulary=300))


def test_facts_say_how_it_runs(runtime: TorchRuntime, spec: ModelSpec) -> None:
    facts = runtime.load(spec, FLOAT32).facts
    assert (facts.runtime, facts.version, facts.precision, facts.layout) == (
        "torch",
        torch.__version__,
        "float32",
        "packed",
    )
    assert facts.bytes_in_use > 4 * spec.vocabulary_size * 32


def test_threads_are_as_asked(runtime: TorchRuntime, spec: ModelSpec) -> None:
    session = runtime.load(spec, msgspec.structs.replace(FLOAT32, num_threads=2))
    torch.set_num_threads(1)
    session.run(random_batch([3], vocabulary=300))
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


@pytest.mark.parametrize("lengths", [(1,), (16,), (5, 9), (7, 7, 1, 1), (40, 20, 3)])
def test_a_replayed_batch_equals_a_plain_one(runtime: TorchRuntime, spec: ModelSpec, lengths: tuple[int, ...]) -> None:
    """The memory that a CUDA graph reads, filled and read on the CPU, where a recording is the function itself."""
    session = runtime.load(spec, FLOAT32)
    encoder = session._encoder
    with torch.inference_mode():
        graphs = Graphs(*recordable(encoder, session._heads[0], max_tokens=200), record=lambda run: run)
        for seed in range(3):
            batch = random_batch(lengths, vocabulary=300, seed=seed)
            (part,) = pack(batch.lengths, 1000)
            replayed = graphs.run(fill(batch, part, encoder.numbering, encoder.padding_id))
            assert replayed is not None
            assert_equal(replayed["dense"][: len(lengths)].numpy(), session.run(batch)["dense"][part.items])


def recordable(encoder: Encoder, head: Head, max_tokens: int) -> tuple:
    return (
        lambda part, longest: {head.name: head.compute(encoder.states(part, 0, longest), part)},
        max_tokens,
        encoder.padding_id,
        encoder.device,
    )


@pytest.mark.parametrize("lengths", [(65,), (1,) * 17])
def test_what_no_graph_holds_is_left_to_a_plain_forward(
    runtime: TorchRuntime, spec: ModelSpec, lengths: tuple[int, ...]
) -> None:
    session = runtime.load(spec, FLOAT32)
    with torch.inference_mode():
        graphs = Graphs(*recordable(session._encoder, session._heads[0], max_tokens=50), record=lambda run: run)
        batch = random_batch(lengths, vocabulary=300)
        (part,) = pack(batch.lengths, 1000)
        assert graphs.run(fill(batch, part, "from_zero", 0)) is None
