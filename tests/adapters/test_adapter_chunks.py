"""Overflow "chunk": a long text in windows, and the mean of their vectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shoal.adapters import open_adapter
from shoal.adapters.base import Adapter, Prepared
from shoal.catalog import resolve
from shoal.errors import InternalError, InvalidRequest, UnsupportedOperation
from shoal.types import EmbedOptions

MAX_LENGTH = 128
LONG = " ".join(f"word{number}" for number in range(300))
CHUNK = EmbedOptions(overflow="chunk")

Open = Callable[..., Adapter]


@pytest.fixture
def adapter(tiny_model: Callable[..., Path]) -> Open:
    """`adapter(...)`: that of a tiny BERT with two prompts."""

    def build(**fields: Any) -> Adapter:
        prompts = (("query", "a long prompt indeed: "),)
        return open_adapter(resolve(str(tiny_model("bert", prompts=prompts, **fields))))

    return build


def whole(adapter: Adapter, text: str) -> list[int]:
    """All ids of a text, without special tokens, put together from its windows."""
    return [token for run in adapter.prepare([text], CHUNK) for token in run.token_ids[1:-1].tolist()]


def test_windows_hold_every_token_once(adapter: Open) -> None:
    bert = adapter()
    short, *windows = bert.prepare(["short", LONG], CHUNK)
    assert not short.continues
    assert [run.continues for run in windows] == [False, *[True] * (len(windows) - 1)]
    assert len(windows) > 2
    assert {run.cost for run in windows[:-1]} == {MAX_LENGTH}
    assert {(run.token_ids[0], run.token_ids[-1]) for run in windows} == {(short.token_ids[0], short.token_ids[-1])}
    assert not any(run.was_truncated for run in windows)
    cut = bert.prepare([LONG], EmbedOptions(overflow="truncate"))[0]
    assert windows[0].token_ids.tolist() == cut.token_ids.tolist()
    halves = whole(bert, LONG[: LONG.index(" word150")]) + whole(bert, LONG[LONG.index("word150") :])
    assert whole(bert, LONG) == halves


@pytest.mark.parametrize("include_prompt", [True, False])
def test_the_prompt_stands_in_front_of_each_window(adapter: Open, include_prompt: bool) -> None:
    bert = adapter(include_prompt=include_prompt)
    prompt = whole(bert, "a long prompt indeed: ")
    windows = bert.prepare([LONG], EmbedOptions(overflow="chunk", prompt_name="query"))
    assert len(windows) > 2
    kept = []
    for run in windows:
        assert run.token_ids[1 : 1 + len(prompt)].tolist() == prompt
        assert run.cost <= MAX_LENGTH
        assert run.pool_from == (0 if include_prompt else 1 + len(prompt))
        kept += run.token_ids[1 + len(prompt) : -1].tolist()
    assert kept == whole(bert, LONG)


def test_a_prompt_that_fills_a_window_is_refused(adapter: Open) -> None:
    with pytest.raises(InvalidRequest, match="leaves no room") as refused:
        adapter().prepare([LONG], EmbedOptions(overflow="chunk", prompt=LONG))
    assert refused.value.param == "overflow"


def mean(vectors: npt.NDArray[np.float32], runs: list[Prepared], num_others: int) -> npt.NDArray[np.float64]:
    weights = np.array([run.cost - num_others for run in runs], np.float64)
    return (vectors.astype(np.float64) * weights[:, None]).sum(axis=0) / weights.sum()


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("prompt", [None, "query"])
def test_the_mean_is_weighted_by_the_texts_own_tokens(adapter: Open, normalize: bool, prompt: str | None) -> None:
    bert = adapter(normalize=normalize)
    options = EmbedOptions(overflow="chunk", prompt_name=prompt)
    runs = bert.prepare(["first", LONG, "last"], options)
    raw = np.random.default_rng(0).standard_normal((len(runs), 32)).astype(np.float32)
    if normalize:
        raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    num_others = 2 + (len(whole(bert, "a long prompt indeed: ")) if prompt else 0)
    expected = mean(raw[1:-1], runs[1:-1], num_others)
    if normalize:
        expected /= np.linalg.norm(expected)
    (vectors,) = bert.finish({"dense": raw}, options, runs)
    assert vectors.data.shape == (3, 32)
    np.testing.assert_array_equal(vectors.data[[0, 2]], raw[[0, -1]])
    np.testing.assert_allclose(vectors.data[1], expected, atol=1e-6)


def test_a_window_without_a_sound_vector_names_its_text(adapter: Open) -> None:
    bert = adapter()
    runs = bert.prepare(["first", LONG], CHUNK)
    raw = np.ones((len(runs), 32), np.float32)
    raw[-1] = np.nan
    with pytest.raises(InternalError, match="row 1"):
        bert.finish({"dense": raw}, CHUNK, runs)


def test_only_dense_vectors_have_a_mean(tiny_head: Callable[..., Path]) -> None:
    from tiny_heads import TinyHead

    adapter = open_adapter(resolve(str(tiny_head(TinyHead("bert", "sparse")))))
    with pytest.raises(UnsupportedOperation, match="overflow"):
        adapter.check(EmbedOptions(overflow="chunk", outputs=("sparse",)))
