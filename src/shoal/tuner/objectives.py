"""What a configuration is judged by: one figure, higher being better, both predicted and measured."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import msgspec

from shoal.bench.measure import Generator, interleave, try_rate
from shoal.bench.plan import Arrivals, Load, Measured
from shoal.bench.targets import Target
from shoal.tuner.belief import Belief
from shoal.tuner.prediction import Cost, highest_rate, latency_percentile_s

__all__ = ["HighestRate", "LeastCost", "LowestLatency", "Objective", "Raced"]

STRETCH_S = 2.0
"""Shortest load in which a 99th percentile is more than one request, at some hundred requests a second."""

_CLOSED_CONNECTIONS = 16
_GUESSED_SHARE = 0.65
NUM_LOADS = 12
"""So many short loads find a rate. A few long ones tell no more, and one that something else disturbs spoils them."""

_ROUNDS = 2
"""Loads of a configuration in a race where the load does not search for a rate."""

_COST_CONNECTIONS, _COST_TEXTS = 8, 64


class Raced(msgspec.Struct, frozen=True):
    """What came of a configuration in a race.

    Attributes:
        figure: the objective's, higher being better; 0 for a failure.
        points: (rate in requests/s, p99 in ms) of each load.
        errors: how many requests failed, by reason.
    """

    figure: float = 0.0
    points: list[tuple[float, float]] = []
    errors: dict[str, int] = {}


class Objective(Protocol):
    """What configurations are compared by; has a `name` for ledgers and profiles, and a `unit` of its figure.

    Attributes:
        stretch_s: seconds of the shortest load.
        num_stretches: of them, for each configuration in the shortest race.
    """

    @property
    def stretch_s(self) -> float: ...
    @property
    def num_stretches(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...

    def predict(self, cost: Cost, lengths: Sequence[int]) -> float:
        """The figure that a cost model promises; `lengths` are tokens of the texts."""
        ...

    def measure(
        self, generator: Generator, targets: Sequence[Target], texts: Sequence[str], seed: int, effort: float
    ) -> list[Raced]:
        """What came of each target, all under the same load in turns."""
        ...


class HighestRate(msgspec.Struct, frozen=True):
    """The highest Poisson rate of single texts at which 99 of 100 replies come within a limit."""

    limit_ms: float = 50.0
    stretch_s: float = STRETCH_S

    @property
    def num_stretches(self) -> int:
        return 1 + NUM_LOADS

    @property
    def name(self) -> str:
        return f"highest rate with p99 within {self.limit_ms:g} ms"

    @property
    def unit(self) -> str:
        return "requests/s"

    def predict(self, cost: Cost, lengths: Sequence[int]) -> float:
        return highest_rate(cost, lengths, self.limit_ms / 1000)

    def measure(
        self, generator: Generator, targets: Sequence[Target], texts: Sequence[str], seed: int, effort: float
    ) -> list[Raced]:
        loads = _loads(targets, texts, 1, Arrivals("closed", concurrency=_CLOSED_CONNECTIONS), self.stretch_s, seed)
        closed = {load.target.name: generator.measure(load) for load in loads}
        beliefs = {name: Belief(_GUESSED_SHARE * one.requests_per_s) for name, one in closed.items() if one.num_ok}
        points: dict[str, list[tuple[float, float]]] = {target.name: [] for target in targets}
        errors: dict[str, Counter[str]] = {target.name: Counter() for target in targets}
        for number in range(round(NUM_LOADS * effort)):
            for load in loads if number % 2 == 0 else reversed(loads):
                name = load.target.name
                if name in beliefs:
                    drawn = msgspec.structs.replace(load, seed=1000 * seed + number)
                    trial = try_rate(generator, drawn, beliefs[name].rate, self.limit_ms / 1000, 99.0)
                    points[name].append(_point(trial.rate, trial.measured))
                    errors[name].update(trial.measured.errors)
                    beliefs[name].tell(trial.rate, is_good=trial.is_good)
        figures = {name: one.estimate for name, one in beliefs.items()}
        names = [target.name for target in targets]
        return [Raced(figures.get(name, 0.0), points[name], dict(errors[name])) for name in names]


class LowestLatency(msgspec.Struct, frozen=True):
    """The 99th percentile at a given Poisson rate of single texts, as its inverse."""

    rate: float
    stretch_s: float = STRETCH_S

    @property
    def num_stretches(self) -> int:
        return _ROUNDS

    @property
    def name(self) -> str:
        return f"lowest p99 at {self.rate:g} requests/s"

    @property
    def unit(self) -> str:
        return "1/s"

    def predict(self, cost: Cost, lengths: Sequence[int]) -> float:
        return 1 / latency_percentile_s(cost, lengths, self.rate, 99.0)

    def measure(
        self, generator: Generator, targets: Sequence[Target], texts: Sequence[str], seed: int, effort: float
    ) -> list[Raced]:
        loads = _loads(targets, texts, 1, Arrivals("poisson", rate=self.rate), self.stretch_s * effort, seed)
        measured = interleave(generator, loads, _ROUNDS, lambda: None)
        raced = []
        for target in targets:
            worst_s = max(one.latency.percentile_s(99.0) for one in measured[target.name])
            points = [_point(self.rate, one) for one in measured[target.name]]
            raced.append(Raced(1 / worst_s, points, _errors(measured[target.name])))  # 1 / infinity is 0: a failure
        return raced


class LeastCost(msgspec.Struct, frozen=True):
    """Tokens for a unit of money: the machine's price an hour, at full load with long lists."""

    price_per_hour: float = 1.0
    stretch_s: float = STRETCH_S

    @property
    def num_stretches(self) -> int:
        return _ROUNDS

    @property
    def name(self) -> str:
        return f"least cost at {self.price_per_hour:g} an hour"

    @property
    def unit(self) -> str:
        return "tokens per unit of money"

    def predict(self, cost: Cost, lengths: Sequence[int]) -> float:
        tokens = cost.quantum_tokens
        num_requests = tokens / (_COST_TEXTS * sum(lengths) / len(lengths))
        seconds = (cost.a_s + cost.c_s * tokens + cost.f_s * num_requests) * statistics.fmean(cost.spread)
        return tokens / seconds * 3600 / self.price_per_hour

    def measure(
        self, generator: Generator, targets: Sequence[Target], texts: Sequence[str], seed: int, effort: float
    ) -> list[Raced]:
        arrivals = Arrivals("closed", concurrency=_COST_CONNECTIONS)
        loads = _loads(targets, texts, _COST_TEXTS, arrivals, self.stretch_s * effort, seed)
        measured = interleave(generator, loads, _ROUNDS, lambda: None)
        raced = []
        for target in targets:
            tokens_per_s = min(one.tokens_per_s for one in measured[target.name])
            points = [_point(one.requests_per_s, one) for one in measured[target.name]]
            raced.append(Raced(tokens_per_s * 3600 / self.price_per_hour, points, _errors(measured[target.name])))
        return raced


def _point(rate: float, measured: Measured) -> tuple[float, float]:
    p99_ms = measured.percentile_ms(99.0)
    return round(rate, 3), round(p99_ms, 3) if math.isfinite(p99_ms) else 0.0


def _errors(measured: Sequence[Measured]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in measured:
        total.update(one.errors)
    return dict(total)


def _loads(
    targets: Sequence[Target], texts: Sequence[str], size: int, arrivals: Arrivals, duration_s: float, seed: int
) -> list[Load]:
    requests = [list(texts[start : start + size]) for start in range(0, len(texts), size)]
    return [Load(target, arrivals, requests, duration_s, seed=seed) for target in targets]
