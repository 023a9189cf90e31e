"""What a load is, and what came of it: the structs that go to the generator's processes and come back."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from shoal.bench.histogram import Histogram
from shoal.bench.targets import Target

__all__ = ["Arrivals", "Load", "Measured"]

MOST_LAG_S = 0.002
MOST_LAG_SHARE = 0.1
MOST_CPU_SHARE = 0.9
MOST_REASONS = 3


class Arrivals(msgspec.Struct, frozen=True):
    """When requests are sent.

    Attributes:
        kind: `poisson`, `bursts` and `trace` are open loops: a request is sent when it is meant to be, whatever became
            of those before. `closed` is not: each of `concurrency` connections sends its next one after a reply, so
            that a slow server is asked less, and latency says less than it seems to.
        rate: requests a second, on average (poisson, bursts).
        burst_size: requests at the same moment (bursts).
        trace: offsets in seconds (trace).
        concurrency: connections (closed).
    """

    kind: Literal["poisson", "bursts", "trace", "closed"]
    rate: float = 0.0
    burst_size: int = 1
    trace: tuple[float, ...] = ()
    concurrency: int = 0

    @property
    def is_open(self) -> bool:
        return self.kind != "closed"

    @property
    def text(self) -> str:
        """In words."""
        match self.kind:
            case "closed":
                return f"closed loop, {self.concurrency} connections"
            case "trace":
                return f"open loop, trace of {len(self.trace)} requests"
            case "bursts":
                return f"open loop, bursts of {self.burst_size}, {self.rate:.6g} requests/s"
        return f"open loop, Poisson, {self.rate:.6g} requests/s"

    def share(self, number: int, num_processes: int) -> Arrivals:
        """What one of several processes sends of it."""
        return Arrivals(
            self.kind,
            self.rate / num_processes,
            self.burst_size,
            self.trace[number::num_processes],
            len(range(number, self.concurrency, num_processes)),
        )


class Load(msgspec.Struct, frozen=True):
    """One stretch of load on one target.

    Attributes:
        requests: the texts of each request, sent in turn.
        models, api_keys: of each request; empty if all are of the target's own.
        duration_s: new requests are sent for so long; those under way are waited for.
        timeout_s: of a request, from the intended time on.
        seed: of the arrivals.
        max_connections: of each process.
    """

    target: Target
    arrivals: Arrivals
    requests: list[list[str]]
    duration_s: float
    timeout_s: float = 30.0
    seed: int = 0
    max_connections: int = 1024
    models: list[str] = []
    api_keys: list[str] = []

    def messages(self) -> list[bytes]:
        """Each request as it goes over the wire."""
        models = self.models or [self.target.model] * len(self.requests)
        keys = self.api_keys or [self.target.api_key] * len(self.requests)
        kinds = {
            pair: msgspec.structs.replace(self.target, model=pair[0], api_key=pair[1])
            for pair in set(zip(models, keys, strict=True))
        }
        rows = zip(models, keys, self.requests, strict=True)
        return [kinds[model, key].request(texts) for model, key, texts in rows]


class Measured(msgspec.Struct):
    """What came of a load.

    Attributes:
        latency: of each request; in an open loop from the time at which it was meant to be sent.
        lag: how much later than meant requests were sent (open loop).
        errors: how many failed, by reason.
        num_items, num_tokens: answered; tokens as the server counts them, 0 if it does not.
        seconds: from the first request to the last reply; where none was sent, for how long one could have been.
        cpu_share: of one core, used by the busiest process of the generator.
        num_waits: requests for which no connection was free.
    """

    latency: Histogram
    lag: Histogram
    errors: dict[str, int]
    num_items: int = 0
    num_tokens: int = 0
    seconds: float = 0.0
    cpu_share: float = 0.0
    num_waits: int = 0

    @staticmethod
    def sum(parts: list[Measured], *, is_parallel: bool) -> Measured:
        """Of processes that ran at the same time, or of stretches one after another."""
        total = Measured(Histogram.sum(part.latency for part in parts), Histogram.sum(part.lag for part in parts), {})
        for part in parts:
            for reason, count in part.errors.items():
                total.errors[reason] = total.errors.get(reason, 0) + count
            total.num_items += part.num_items
            total.num_tokens += part.num_tokens
            total.num_waits += part.num_waits
            total.cpu_share = max(total.cpu_share, part.cpu_share)
        total.seconds = max(part.seconds for part in parts) if is_parallel else sum(part.seconds for part in parts)
        return total

    @property
    def num_ok(self) -> int:
        return self.latency.num_ended

    @property
    def num_failed(self) -> int:
        return self.latency.num_failed

    @property
    def failures(self) -> str:
        """How many requests failed, with the commonest reasons; empty if none did."""
        if not self.num_failed:
            return ""
        reasons = sorted(self.errors, key=self.errors.__getitem__, reverse=True)
        named = "; ".join(reasons[:MOST_REASONS])
        return f"{self.num_failed:,} of {self.num_ok + self.num_failed:,} requests failed: {named}"

    @property
    def emptiness(self) -> str:
        """Why these are no figures: no request was sent, or none answered; empty if one was."""
        return "" if self.num_ok else self.failures or f"no request was sent in {self.seconds:.3g} s"

    @property
    def requests_per_s(self) -> float:
        return self.num_ok / self.seconds if self.seconds else 0.0

    @property
    def items_per_s(self) -> float:
        return self.num_items / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds if self.seconds else 0.0

    def percentile_ms(self, percent: float) -> float:
        """Of latency; infinite where it takes in failures."""
        return self.latency.percentile_s(percent) * 1e3

    def doubts(self, limit_s: float | None = None) -> list[str]:
        """Why these figures are about the generator rather than the server; none if they are not, or there are none.

        Args:
            limit_s: the latency that matters; without it, what 99 % of requests took.
        """
        if self.emptiness:
            return []
        doubts = []
        lag_s = self.lag.percentile_s(99)
        slow_s = self.latency.percentile_s(99) if limit_s is None else limit_s
        allowed_s = max(MOST_LAG_S, MOST_LAG_SHARE * slow_s if math.isfinite(slow_s) else 0.0)
        if lag_s > allowed_s:
            doubts.append(
                f"the generator sent 1 % of requests more than {lag_s * 1e3:.1f} ms late "
                f"(allowed: {allowed_s * 1e3:.1f} ms)"
            )
        if self.cpu_share > MOST_CPU_SHARE:
            doubts.append(f"the generator used {self.cpu_share:.0%} of a core; give it more --processes")
        if self.num_waits > 0.01 * self.num_ok:
            doubts.append(f"{self.num_waits:,} requests had to wait for a connection; more --processes have more")
        return doubts
