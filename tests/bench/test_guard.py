"""A guard against large regressions: ratios of things measured in turns on this machine, never times.

Bounds are generous, a third to a half of what a quiet machine shows; `benchmarks/` has the figures.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

import shoal
from e2e.running import MODEL, serving
from shoal.bench.texts import Mix, runs_of_words

pytestmark = pytest.mark.slow

ROUNDS = 3


@pytest.fixture(scope="module")
def client() -> Iterator[shoal.Client]:
    with serving(MODEL) as (_, url), shoal.Client(url, timeout_s=100) as client:
        yield client


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratio(one: Callable[[], object], other: Callable[[], object]) -> float:
    """How many times as long `one` takes as `other`: the median over rounds, in turns."""
    one(), other()
    return statistics.median(seconds(one) / seconds(other) for _ in range(ROUNDS))


def test_shoal_over_http_keeps_up_with_sentence_transformers_in_process(
    client: shoal.Client, demo_directory: Path
) -> None:
    reference = SentenceTransformer(str(demo_directory), device="cpu")
    texts = runs_of_words(Mix(5, 60, ""), 24, seed=1)
    # 1.2 to 1.4 on two quiet cores
    assert ratio(lambda: reference.encode(texts), lambda: client.embed(texts)) > 0.5


def test_mixed_lengths_cost_what_their_tokens_cost(client: shoal.Client) -> None:
    short, mixed = runs_of_words(Mix(30, 30, ""), 30, seed=2), runs_of_words(Mix(2, 58, ""), 30, seed=2)
    per_token = [client.embed(texts).num_tokens for texts in (short, mixed)]
    share = sum(per_token[1]) / sum(per_token[0])
    # about 1: texts are packed; padded to the longest it would be about 2
    assert ratio(lambda: client.embed(mixed), lambda: client.embed(short)) / share < 1.8


def test_a_lone_request_is_mostly_its_forward_pass(client: shoal.Client) -> None:
    text = runs_of_words(Mix(100, 100, ""), 1, seed=3)
    client.embed(text)
    replies = [client.embed(text).times for _ in range(15)]
    # about 0.9 on two quiet cores
    assert statistics.median(times["inference_ms"] / times["total_ms"] for times in replies) > 0.4
