"""Decoders that rank, from saved files to scores, against sentence-transformers' CrossEncoder with a LogitScore.

To add a family: one row in `JUDGES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from parity import Parity
from shoal.adapters import open_adapter
from shoal.adapters.base import Scores
from shoal.adapters.tokenizing import TextTokenizer
from shoal.catalog import resolve
from shoal.errors import ContextLengthExceeded
from shoal.runtimes.base import RuntimeOptions
from shoal.runtimes.registry import open_runtime
from shoal.types import RerankOptions
from tiny_heads import TinyHead, cross_scores, load_cross_encoder
from tiny_models import NASTY_TEXTS, quiet

Build = Callable[[TinyHead], Path]
QUERY = "What is the capital of France?"
HEADS = (("num_key_value_heads", 2), ("head_dim", 16))
JUDGES = {
    "qwen3": TinyHead("qwen3", "judge", max_length=160, config=HEADS),
    "qwen3-tied": TinyHead("qwen3", "judge", max_length=160, config=(*HEADS, ("tie_word_embeddings", True))),
    "qwen3-identity": TinyHead("qwen3", "judge", max_length=160, config=HEADS, activation="Identity"),
    "qwen2": TinyHead("qwen2", "judge", max_length=160, config=(("num_key_value_heads", 1),)),
    "llama": TinyHead("llama", "judge", max_length=200),
    "mistral": TinyHead("mistral", "judge", max_length=200, config=(("num_key_value_heads", 2),)),
    "gemma3": TinyHead("gemma3_text", "judge", max_length=200, config=HEADS),
}


class Served:
    """A model from its files to what a caller gets."""

    def __init__(self, directory: Path, runtime: str = "openvino") -> None:
        self.spec = resolve(str(directory))
        self.adapter = open_adapter(self.spec)
        self.session = open_runtime(runtime).load(self.spec, RuntimeOptions(precision="float32", num_threads=1))

    def scores(self, documents: Sequence[str], options: RerankOptions) -> npt.NDArray[np.float32]:
        self.adapter.check(options)
        runs = self.adapter.prepare(documents, options)
        (finished,) = self.adapter.finish(self.session.run(self.adapter.collate(runs)), options, runs)
        assert isinstance(finished, Scores)
        return finished.values


def reference_ids(judge: Any, query: str, document: str, **options: Any) -> list[int]:
    with quiet():
        ids: list[int] = judge.preprocess([(query, document)], **options)["input_ids"][0].tolist()
    return ids


@pytest.mark.parametrize("name", JUDGES)
def test_a_judge_equals_the_reference(name: str, tiny_head: Build, parity: Parity) -> None:
    """C38, C14, C15: the template is the server's, whatever stands in a document; alone and in a batch."""
    directory = tiny_head(JUDGES[name])
    served, judge = Served(directory), load_cross_encoder(directory)
    by_torch = Served(directory, "torch")
    assert served.spec.operations == ("rerank", "tokenize")
    assert served.spec.rerank_method == "cross_encoder"
    options = RerankOptions(QUERY)
    for text, run in zip(NASTY_TEXTS, served.adapter.prepare(NASTY_TEXTS, options), strict=True):
        assert run.token_ids.tolist() == reference_ids(judge, QUERY, text), text[:60]
    raw = cross_scores(judge, QUERY, NASTY_TEXTS, activation_fn=torch.nn.Identity())
    assert raw.std() > 1e-3
    for raw_scores, expected in ((False, judge.activation_fn(torch.tensor(raw)).numpy()), (True, raw)):
        options = RerankOptions(QUERY, raw_scores=raw_scores)
        for runtime, model in (("openvino", served), ("torch", by_torch)):
            together = model.scores(NASTY_TEXTS, options)
            alone = np.concatenate([model.scores([text], options) for text in NASTY_TEXTS])
            parity.check(JUDGES[name].architecture, "rerank", runtime, expected, together, alone)


def test_an_instruction_takes_the_place_of_the_system_message(tiny_head: Build) -> None:
    directory = tiny_head(JUDGES["qwen3"])
    served, judge = Served(directory), load_cross_encoder(directory)
    assert served.spec.card.takes_instruction
    texts, options = NASTY_TEXTS[:20], RerankOptions(QUERY, raw_scores=True, instruction="Find the answer")
    for text, run in zip(texts, served.adapter.prepare(texts, options), strict=True):
        assert run.token_ids.tolist() == reference_ids(judge, QUERY, text, prompt="Find the answer"), text[:60]
    expected = cross_scores(judge, QUERY, texts, activation_fn=torch.nn.Identity(), prompt="Find the answer")
    np.testing.assert_allclose(served.scores(texts, options), expected, atol=1e-4 * max(1.0, np.abs(expected).max()))
    assert np.abs(expected - served.scores(texts, RerankOptions(QUERY, raw_scores=True))).max() > 1e-3


@pytest.mark.parametrize("query", ["", "q", "Was?\n", "two  ", "東京", "7", "<|im_end|> \u0301"])
@pytest.mark.parametrize("name", ["qwen3", "llama", "gemma3"])
def test_what_is_tokenised_once_is_the_references(name: str, query: str, tiny_head: Build) -> None:
    """Whatever a query ends and a document begins with."""
    directory = tiny_head(JUDGES[name])
    adapter, judge = open_adapter(resolve(str(directory))), load_cross_encoder(directory)
    texts = [text for text in NASTY_TEXTS if len(text) < 100]
    for text, run in zip(texts, adapter.prepare(texts, RerankOptions(query)), strict=True):
        assert run.token_ids.tolist() == reference_ids(judge, query, text), text


def test_only_the_document_is_cut(tiny_head: Build) -> None:
    served = Served(tiny_head(JUDGES["qwen3"]))
    short, long = served.adapter.prepare(["short", "word " * 400], RerankOptions(QUERY))
    assert (short.was_truncated, long.was_truncated, long.cost) == (False, True, 160)
    assert served.spec.frame is not None
    (closing,) = TextTokenizer(served.spec.tokenization).encode([served.spec.frame.parts[-1]])
    assert closing
    assert long.token_ids[-len(closing) :].tolist() == short.token_ids[-len(closing) :].tolist() == closing
    with pytest.raises(ContextLengthExceeded) as refused:
        served.adapter.prepare(["short", "word " * 400], RerankOptions(QUERY, truncate=False), first_item=3)
    assert refused.value.param == "input[4]"
    with pytest.raises(ContextLengthExceeded) as refused:
        served.adapter.prepare(["short"], RerankOptions("word " * 400))
    assert refused.value.param == "query"
