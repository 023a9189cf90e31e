"""What a configuration should do under load, from its cost model: a simulation of one batch queue. Pure, seeded.

Requests arrive at random (Poisson). A device that becomes idle takes all that waits, up to its quantum, and is busy for
S = a + c * tokens + f * requests; f is what each request costs beside the device (HTTP, tokenising, the generator), as
far as that competes for the same cores. Equal batches do not take equal time: each is longer by a factor that is drawn
from those which were seen when a, c were measured. Without that, a 99th percentile comes out far too low.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

__all__ = ["Cost", "fit_cost", "highest_rate", "latency_percentile_s", "overhead_per_request"]

_NUM_ARRIVALS = 4000
_PRECISION = 0.01
_LEAST_RATE = 0.01


class Cost(msgspec.Struct, frozen=True):
    """S(batch) = a_s + c_s * tokens + f_s * requests, for batches of up to `quantum_tokens`.

    Attributes:
        spread: by which a batch takes longer, each factor as likely as the others.
    """

    a_s: float
    c_s: float
    f_s: float = 0.0
    quantum_tokens: int = 1 << 15
    spread: tuple[float, ...] = (1.0,)

    def seconds(self, num_tokens: float, num_requests: int) -> float:
        return self.a_s + self.c_s * num_tokens + self.f_s * num_requests


def fit_cost(samples: Sequence[tuple[int, float]], quantum_tokens: int) -> Cost:
    """Least squares of the relative error over (tokens, seconds); of equal tokens only the fastest counts."""
    fastest: dict[int, float] = {}
    for num_tokens, seconds in samples:
        fastest[num_tokens] = min(seconds, fastest.get(num_tokens, math.inf))
    tokens, seconds_ = np.array(list(fastest), float), np.array(list(fastest.values()))
    rows = np.stack([1 / seconds_, tokens / seconds_], axis=1)
    (a_s, c_s), *_ = np.linalg.lstsq(rows, np.ones(len(tokens)), rcond=None)
    return Cost(max(0.0, float(a_s)), max(1e-9, float(c_s)), quantum_tokens=quantum_tokens)


def latency_percentile_s(cost: Cost, lengths: Sequence[int], rate: float, percent: float, seed: int = 0) -> float:
    """Latency that `percent` of requests of one text stay below, in seconds; `lengths` are the texts' tokens."""
    generator = np.random.default_rng(seed)
    arrivals = np.cumsum(generator.exponential(1 / rate, _NUM_ARRIVALS))
    tokens = generator.choice(np.asarray(lengths, float), _NUM_ARRIVALS)
    factors = generator.choice(np.asarray(cost.spread), _NUM_ARRIVALS)
    latencies = np.empty(_NUM_ARRIVALS)
    now, first = 0.0, 0
    while first < _NUM_ARRIVALS:
        now = max(now, float(arrivals[first]))
        stop, in_batch = first, 0.0
        while stop < _NUM_ARRIVALS and arrivals[stop] <= now:
            if stop > first and in_batch + tokens[stop] > cost.quantum_tokens:
                break
            in_batch += float(tokens[stop])
            stop += 1
        now += cost.seconds(in_batch, stop - first) * float(factors[first])
        latencies[first:stop] = now - arrivals[first:stop]
        first = stop
    return float(np.percentile(latencies[_NUM_ARRIVALS // 10 :], percent))


def highest_rate(cost: Cost, lengths: Sequence[int], limit_s: float, percent: float = 99.0) -> float:
    """Requests of one text a second up to which `percent` of them take at most `limit_s`; 0 if none do."""

    def holds(rate: float) -> bool:
        return latency_percentile_s(cost, lengths, rate, percent) <= limit_s

    mean_tokens = sum(lengths) / len(lengths)
    fullest = max(1, round(cost.quantum_tokens / mean_tokens))
    high = fullest / cost.seconds(fullest * mean_tokens, fullest) / min(cost.spread)
    # full batches without a pause: no device does more
    low = high / 2
    while not holds(low):
        high, low = low, low / 2
        if low < _LEAST_RATE:
            return 0.0
    while high / low > 1 + _PRECISION:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def overhead_per_request(cost: Cost, mean_tokens: float, requests_per_s: float, concurrency: int) -> float:
    """f, from what a closed loop of `concurrency` requests achieved: what a and c do not explain of each request."""
    explained_s = cost.a_s / concurrency + cost.c_s * mean_tokens
    return max(0.0, 1 / requests_per_s - explained_s)
