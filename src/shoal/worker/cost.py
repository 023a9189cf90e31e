"""What a batch costs: S(tokens) = a + c * tokens, measured per (model, device) when a model is loaded.

Pure functions, and one coroutine that times batches through whatever it is given to run them.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import numpy as np

__all__ = ["BRIEFLY_S", "START_S", "THOROUGHLY_S", "CostModel", "fit", "measure", "quantum"]

MEASURED_TOKENS = (16, 32, 64, 256, 1024, 4096)
THOROUGHLY_S, BRIEFLY_S = 0.7, 0.15
"""Seconds of the device that measuring a model may take: at the start, and while somebody waits for it."""

START_S = 20.0
"""All that measuring may take at the start, however many models there are."""

WAITING_SHARE = 0.3
"""So much of the time may pass on the device; behind others' batches it takes longer, but not for ever."""

LEAST_BATCHES = 5
"""It may take so many times the first batch in any case: one size alone does not tell a from c."""

INFORMATIVE_SHARE = 0.25
"""A size that takes less than this part of a for its tokens tells little of c."""

ROUNDS = 4
"""So often each size runs again, if there is time: what disturbs the machine for a moment then spoils no size."""

MARGIN = 1.5
"""A size that has not run yet may take so much longer than the smaller ones let expect."""

QUANTUM_SHARE = 0.6


class CostModel(msgspec.Struct, frozen=True):
    """Seconds for a batch: `a_s` for being a batch, `c_s` for each token in it."""

    a_s: float = 0.0
    c_s: float = 0.0

    def seconds(self, num_tokens: int) -> float:
        """S(num_tokens)."""
        return self.a_s + self.c_s * num_tokens


def fit(samples: Sequence[tuple[int, float]]) -> CostModel:
    """Least squares over (tokens, seconds), of the relative error, with neither a nor c below zero.

    Of several samples with equal tokens only the fastest counts: noise on a shared machine only ever adds.
    """
    fastest: dict[int, float] = {}
    for num_tokens, seconds in samples:
        fastest[num_tokens] = min(seconds, fastest.get(num_tokens, seconds))
    tokens = np.array(list(fastest), dtype=np.float64)
    seconds_ = np.maximum(np.array(list(fastest.values())), 1e-9)
    if len(tokens) == 0:
        return CostModel()
    ones, scaled = 1 / seconds_, tokens / seconds_  # rows divided by their seconds: a relative error
    (a_s, c_s), *_ = np.linalg.lstsq(np.stack([ones, scaled], axis=1), np.ones(len(tokens)), rcond=None)
    if c_s < 0:
        a_s, c_s = ones.sum() / (ones @ ones), 0.0
    elif a_s < 0 or len(tokens) == 1:
        a_s, c_s = 0.0, scaled.sum() / (scaled @ scaled)
    return CostModel(float(a_s), float(c_s))


def quantum(cost: CostModel, objective_s: float, max_length: int, max_batch_tokens: int) -> int:
    """Tokens of the largest batch with S <= 0.6 of the latency objective.

    Never below `max_length`, as one item may be that long; never above `max_batch_tokens`.
    """
    if cost.c_s <= 0:
        return max_batch_tokens
    tokens = int(max(0.0, QUANTUM_SHARE * objective_s - cost.a_s) / cost.c_s)
    return min(max(tokens, max_length), max_batch_tokens)


async def measure(
    run: Callable[[int], Awaitable[tuple[int, float]]], max_tokens: int, limit_s: float = THOROUGHLY_S
) -> tuple[CostModel, int]:
    """Time about two dozen batches and fit them; returns the fit, and the most tokens that a batch may have.

    That is `max_tokens`, or what did fit into memory before a size that did not.

    The first round warms up each size's kernels and finds the sizes: two, and then larger ones that tell more of c,
    until the next would leave the time allowed, so a slow model is measured on small batches only. The others go over
    all of them again, and of each size the fastest counts.

    Args:
        run: runs a batch of about so many tokens; returns its true tokens and its seconds, or raises MemoryError.
        max_tokens: larger batches are not tried.
        limit_s: seconds on the device, about.

    Raises:
        MemoryError: not even the smallest batch fits.
    """
    samples: list[tuple[int, float]] = []
    started = time.monotonic()
    sizes: list[int] = []

    def is_time_for(expected_s: float) -> bool:
        waited_s = WAITING_SHARE * (time.monotonic() - started)
        most_s = max(limit_s, LEAST_BATCHES * samples[0][1])
        return max(waited_s, sum(seconds for _, seconds in samples)) + expected_s <= most_s

    for size in MEASURED_TOKENS:
        if samples and size > max_tokens:
            break
        if len(samples) >= 2:
            found = fit(samples)
            if found.c_s * size < INFORMATIVE_SHARE * found.a_s:
                continue
            if not is_time_for(MARGIN * found.seconds(size)):
                break
        try:
            samples.append(await run(size))
        except MemoryError:
            if not samples:
                raise
            max_tokens = samples[-1][0]
            break
        sizes.append(size)
    round_s = sum(seconds for _, seconds in samples)
    for number in range(ROUNDS):
        if number == 0 or is_time_for(round_s):
            samples += [await run(size) for size in sizes]
    return fit(samples), max_tokens
