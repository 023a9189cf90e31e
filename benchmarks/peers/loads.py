"""What the peers are measured with: texts by their tokens, the loads, and one load on all of them in turns.

A peer for which a load would take far longer than for the others is left out of it, and the reason stands in the
result: one slow server must not cost the rest their rounds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from benchmarks import machine
from benchmarks.interleaved import words
from benchmarks.peers.base import MODEL, Running, model_directory
from shoal.bench.asking import embed_all
from shoal.bench.measure import Generator, interleave
from shoal.bench.plan import Arrivals, Load
from shoal.bench.summary import row
from shoal.bench.texts import Mix, runs_of_words
from shoal.catalog import resolve
from shoal.errors import ShoalError

__all__ = ["LOADS", "MIXES", "Cell", "Measurement", "gflop_per_text", "measure", "texts_of"]

TOKENS = {"16 tokens": 16, "28 tokens": 28, "128 tokens": 128}
WORDS = {"5-300 words": Mix(5, 300, "")}
MIXES = ("16 tokens", "128 tokens", "5-300 words")
NUM_REQUESTS = {1: 1024, 64: 32}
MOST_S = 7.0
"""What a stretch of load may take by the time that one request takes alone, for a peer to take part in it."""
PROBE_TEXTS = 8

OPEN_ROUNDS = 2
"""Of an open loop its latencies count, which are put together."""


class Cell(NamedTuple):
    """One load: closed, or open (`concurrency` 0) at half of the rate that Shoal had in the closed one `half_of`."""

    name: str
    mix: str
    items: int
    concurrency: int = 0
    half_of: str = ""


def _closed(mix: str) -> tuple[Cell, ...]:
    return Cell(f"{mix}, 1 text, closed 32", mix, 1, 32), Cell(f"{mix}, 64 texts, closed 2", mix, 64, 2)


LOADS = (
    Cell("lone request of 16 tokens", "16 tokens", 1, 1),
    Cell("28 tokens, 1 text, closed 32", "28 tokens", 1, 32),
    *(cell for mix in MIXES for cell in _closed(mix)),
    *(
        Cell(f"{mix}, 1 text, Poisson at half of Shoal's rate", mix, 1, half_of=f"{mix}, 1 text, closed 32")
        for mix in MIXES
    ),
)


class Measurement(NamedTuple):
    """Of each peer its figures, and why the others have none."""

    rows: dict[str, dict[str, Any]]
    left_out: dict[str, str]


def gflop_per_text(mix: str, num_texts: int = 256) -> float:
    """What the model computes for a text, on average; texts are cut at the length that the model declares."""
    spec = resolve(MODEL)
    tokenizer = Tokenizer.from_file(f"{spec.directory}/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.enable_truncation(spec.tokenization.max_length)
    lengths = [len(one.ids) for one in tokenizer.encode_batch(texts_of(mix, 7, num_texts))]
    flops = [length * machine.encoder_flops_per_token(spec.config, length) for length in lengths]
    return sum(flops) / len(flops) / 1e9


def texts_of(mix: str, seed: int, num_texts: int) -> list[str]:
    """Texts of a mix, the same for the same seed; a number of tokens is met to the token, markers counted."""
    if mix in WORDS:
        return runs_of_words(WORDS[mix], num_texts, seed, words())
    chooser, pool = random.Random(seed), words()  # noqa: S311
    tokenizer = Tokenizer.from_file(f"{model_directory()}/tokenizer.json")
    tokenizer.no_padding()
    lengths = [len(one.ids) for one in tokenizer.encode_batch(pool, add_special_tokens=False)]
    room = TOKENS[mix] - tokenizer.num_special_tokens_to_add(is_pair=False)
    texts: list[str] = []
    while len(texts) < num_texts:
        start = end = chooser.randrange(len(pool))
        left = room
        while end < len(pool) and left > 0:
            left -= lengths[end]
            end += 1
        if left == 0:
            texts.append(" ".join(pool[start:end]))
    return texts


def measure(
    cell: Cell,
    running: Sequence[Running],
    senders: Generator,
    rounds: int,
    seconds: float,
    known: Mapping[str, Mapping[str, Any]],
) -> Measurement:
    """One load on all peers in turns.

    Args:
        known: earlier loads, for the rate of an open loop.
    """
    arrivals = _arrivals(cell, known)
    num_waiting = arrivals.rate * seconds if arrivals.is_open else arrivals.concurrency
    texts = texts_of(cell.mix, 7, NUM_REQUESTS[cell.items] * cell.items)
    requests = [texts[start : start + cell.items] for start in range(0, len(texts), cell.items)]
    loads, left_out = [], {}
    for one in running:
        try:
            alone_s = _alone_s(one, requests[0])
            if alone_s * num_waiting > MOST_S:
                left_out[one.peer.name] = f"one request takes about {alone_s:.2g} s when it is alone"
                continue
            embed_all(one.target, requests[0], cell.items, 1)  # warms up the kernels of these lengths
        except ShoalError as error:
            left_out[one.peer.name] = str(error)
            continue
        loads.append(Load(one.target, arrivals, requests, seconds, timeout_s=60.0, seed=3))
    num_rounds = min(rounds, OPEN_ROUNDS) if arrivals.is_open else rounds
    measured = interleave(senders, loads, num_rounds, lambda: None)
    about = {"mix": cell.mix, "items": cell.items, "load": arrivals.text}
    return Measurement({name: row(each) | about for name, each in measured.items()}, left_out)


def _arrivals(cell: Cell, known: Mapping[str, Mapping[str, Any]]) -> Arrivals:
    if cell.half_of:
        return Arrivals("poisson", rate=known[cell.half_of]["shoal"]["requests_per_s"]["median"] / 2)
    return Arrivals("closed", concurrency=cell.concurrency)


def _alone_s(one: Running, texts: list[str]) -> float:
    """Judged by its first few texts, the better of two tries."""
    probe = texts[:PROBE_TEXTS]
    times_s = []
    for _ in range(2):
        start = time.perf_counter()
        embed_all(one.target, probe, len(probe), 1)
        times_s.append(time.perf_counter() - start)
    return min(times_s) * len(texts) / len(probe)
