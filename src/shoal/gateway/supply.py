"""What the workers of one model can take: how much should be on its way to them, and how fast they are. Pure.

Two opinions make the rate: the workers' own, from the costs that they announce; and once work waits here, the tokens
that come back a second. The second knows what the first does not: other gateways, a busy machine, texts
that are no four bytes a token. All tokens in and out are the gateway's estimates (bytes / 4); true ones stay inside.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.types import LoadedModel

__all__ = ["HELD_BATCHES", "UNKNOWN_WINDOW_TOKENS", "Supply"]

HELD_BATCHES = 2
"""What a worker holds: the batch that runs, and the next one, ready."""

HAND_OVER_S = 0.05
"""From a reply that makes room here until what takes its place has reached the worker, on a machine that is busy."""

UNKNOWN_WINDOW_TOKENS = 4096
"""On its way while no worker has the model ready: the first to come finds something to do."""

UNKNOWN_TOKENS_PER_S = 20_000.0

MEMORY_S = 5.0
"""What was measured so long ago counts half."""

TRUSTED_S = 1.0
"""After so long, what was measured is all that counts."""

LEAST_SHARE = 0.1
"""Workers that stall for a while, as when one restarts, do not count as slower than this part of what they announce."""

LEAST_SECONDS_PER_TOKEN = 1e-7
RATIO_WEIGHT_TOKENS = 20_000
LEAST_RATIO, MOST_RATIO = 0.2, 5.0


class Supply:
    """Window and rate.

    Attributes:
        window_tokens: what should be on its way: for each worker two full batches, and the time to hand over the next.
    """

    def __init__(self) -> None:
        self._window = float(UNKNOWN_WINDOW_TOKENS)
        self._announced_per_s = UNKNOWN_TOKENS_PER_S
        self._ratio = 1.0
        self.window_tokens = self._window
        self._seconds = 0.0
        self._tokens = 0.0
        self._counted_at = 0.0
        self._was_crowded = False

    def know(self, loaded: Sequence[LoadedModel]) -> None:
        """Take in what the workers that are ready announce; what was measured with others of them is forgotten."""
        window, per_s = 0.0, 0.0
        for model in loaded:
            tokens = max(model.quantum_tokens, 1)
            seconds_per_token = max((model.a_s + model.c_s * tokens) / tokens, LEAST_SECONDS_PER_TOKEN)
            window += HELD_BATCHES * tokens + HAND_OVER_S / seconds_per_token
            per_s += 1 / seconds_per_token
        self._window = window or UNKNOWN_WINDOW_TOKENS
        per_s = per_s or UNKNOWN_TOKENS_PER_S
        if per_s != self._announced_per_s:
            self._announced_per_s = per_s
            self._seconds = self._tokens = 0.0
        self.window_tokens = self._window / self._ratio

    def learn(self, estimated_tokens: int, true_tokens: int) -> None:
        """A chunk is answered: what was it really?"""
        weight = min(estimated_tokens / RATIO_WEIGHT_TOKENS, 0.2)
        ratio = self._ratio + weight * (true_tokens / estimated_tokens - self._ratio)
        self._ratio = min(max(ratio, LEAST_RATIO), MOST_RATIO)
        self.window_tokens = self._window / self._ratio

    def count(self, tokens: int, now: float, *, is_crowded: bool) -> None:
        """So many tokens came back, 0 if it is the crowd that is news. Time counts only while there was a crowd."""
        passed_s, self._counted_at = now - self._counted_at, now
        kept = 0.5 ** (passed_s / MEMORY_S)
        self._seconds *= kept
        self._tokens *= kept
        if self._was_crowded:
            self._seconds += passed_s
            self._tokens += tokens
        self._was_crowded = is_crowded

    @property
    def tokens_per_s(self) -> float:
        """How fast work that waits goes away."""
        trust = min(1.0, self._seconds / TRUSTED_S)
        measured = self._tokens / self._seconds if self._seconds else 0.0
        announced = self._announced_per_s / self._ratio
        return max(trust * measured + (1 - trust) * announced, LEAST_SHARE * announced)
