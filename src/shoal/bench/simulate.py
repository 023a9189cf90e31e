"""Dispatch by simulation: workers that batch, models that share them, how requests find a worker. Seeded and pure.

A worker runs one batch at a time, of one model, in a + c * tokens seconds, and never more than its quantum of tokens.
It takes the model whose oldest request has waited longest, as a sidecar does. What differs is who decides, and when:
`push` policies choose a worker at a request's arrival, `pull` lets a worker that is free take a batch.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from shoal.bench.arrivals import poisson
from shoal.bench.histogram import Histogram
from shoal.bench.measure import RateSearch
from shoal.worker.cost import CostModel, quantum

__all__ = ["POLICIES", "Fleet", "Outcome", "goodput", "simulate", "zipf"]

MOST_BATCHES_HELD = 50
"""Full batches (or requests a model, if that is more) that wait for each worker when a run is given up."""


class Fleet(msgspec.Struct, frozen=True):
    """Workers and models.

    Attributes:
        weights: popularity of each model, any scale.
        objective_s: latency objective L, which sets the quantum.
        request_tokens: of each request.
        polled_s: age at which the load that `shortest_polled` sees is renewed.
    """

    num_workers: int
    weights: tuple[float, ...]
    cost: CostModel
    objective_s: float
    request_tokens: int
    polled_s: float = 0.1

    @property
    def batch_requests(self) -> int:
        """Requests in a full batch."""
        tokens = quantum(self.cost, self.objective_s, self.request_tokens, 32768)
        return max(1, tokens // self.request_tokens)

    @property
    def capacity(self) -> float:
        """Requests a second if all batches were full."""
        num_requests = self.batch_requests
        return self.num_workers * num_requests / self.cost.seconds(num_requests * self.request_tokens)


class Outcome(msgspec.Struct, frozen=True):
    """What came of a run.

    Attributes:
        busy_share: of all devices' time.
        batch_fill: mean batch, of the quantum.
    """

    latency: Histogram
    busy_share: float
    batch_fill: float


def zipf(num_models: int, exponent: float = 1.0) -> tuple[float, ...]:
    """Popularity of models by rank."""
    return tuple(1 / rank**exponent for rank in range(1, num_models + 1))


class _Queues:
    """Requests that wait, by model, and which model's head is oldest."""

    def __init__(self) -> None:
        self._by_model: dict[int, deque[float]] = {}
        self._heads: list[tuple[float, int]] = []
        self.num_waiting = 0

    def add(self, model: int, arrival: float) -> None:
        waiting = self._by_model.setdefault(model, deque())
        if not waiting:
            heapq.heappush(self._heads, (arrival, model))
        waiting.append(arrival)
        self.num_waiting += 1

    def take(self, most: int) -> list[float]:
        """Arrivals of the next batch."""
        _, model = heapq.heappop(self._heads)
        waiting = self._by_model[model]
        batch = [waiting.popleft() for _ in range(min(most, len(waiting)))]
        if waiting:
            heapq.heappush(self._heads, (waiting[0], model))
        self.num_waiting -= len(batch)
        return batch


class _Workers:
    """What a policy may look at: requests that each worker holds, and who held least when all were last polled."""

    def __init__(self, fleet: Fleet, chooser: random.Random) -> None:
        self.num = fleet.num_workers
        self.held = [0] * self.num
        self.num_held = 0
        self.shortest = list(range(self.num))
        self.chooser = chooser
        self.turn = itertools.cycle(range(self.num))
        self.places = [random.Random(model).randrange(self.num) for model in range(len(fleet.weights))]  # noqa: S311

    def hold(self, place: int, num_requests: int) -> None:
        """Count so many requests more, or fewer, at a worker."""
        self.held[place] += num_requests
        self.num_held += num_requests

    def poll(self) -> None:
        """See who holds least now."""
        least = min(self.held)
        self.shortest = [place for place, held in enumerate(self.held) if held == least]


Policy = Callable[[_Workers, int], int]


def _round_robin(workers: _Workers, model: int) -> int:
    return next(workers.turn)


def _random(workers: _Workers, model: int) -> int:
    return workers.chooser.randrange(workers.num)


def _power_of_two(workers: _Workers, model: int) -> int:
    one, other = workers.chooser.randrange(workers.num), workers.chooser.randrange(workers.num)
    return one if workers.held[one] <= workers.held[other] else other


def _shortest_polled(workers: _Workers, model: int) -> int:
    return workers.chooser.choice(workers.shortest)


def _bounded_hash(workers: _Workers, model: int) -> int:
    """Consistent hashing by model with bounded loads: the next on the ring that holds less than 1.25 x the mean."""
    most, place = 1.25 * (workers.num_held + 1) / workers.num, workers.places[model]
    while workers.held[place] >= most:
        place = (place + 1) % workers.num
    return place


POLICIES: dict[str, Policy | None] = {
    "pull": None,
    "round robin": _round_robin,
    "random": _random,
    "power of two": _power_of_two,
    "shortest, polled": _shortest_polled,
    "bounded-load hash": _bounded_hash,
}
"""By name; pull has no policy, it asks nobody."""


def simulate(fleet: Fleet, policy: str, rate: float, duration_s: float, seed: int = 0) -> Outcome:
    """Poisson arrivals for `duration_s`, run until all are answered, or hopelessly many wait: those have failed."""
    return _Simulation(fleet, POLICIES[policy], seed).run(poisson(rate, duration_s, seed))


class _Simulation:
    def __init__(self, fleet: Fleet, policy: Policy | None, seed: int) -> None:
        self._fleet = fleet
        self._policy = policy
        self._chooser = random.Random(seed + 1)  # noqa: S311
        self._workers = _Workers(fleet, self._chooser)
        shared = _Queues()
        self._queues = [shared if policy is None else _Queues() for _ in range(fleet.num_workers)]
        self._idle = set(range(fleet.num_workers))
        self._first_idle = list(range(fleet.num_workers))  # a heap, with some that are idle no more
        self._ends: list[tuple[float, int, list[float]]] = []
        self._latency = Histogram()
        self._busy_s = 0.0
        self._num_batches = 0
        self._num_ended = 0
        self._polled_at = 0.0

    def run(self, arrivals: Sequence[float]) -> Outcome:
        fleet = self._fleet
        models = self._chooser.choices(range(len(fleet.weights)), fleet.weights, k=len(arrivals))
        most = MOST_BATCHES_HELD * fleet.num_workers * max(fleet.batch_requests, len(fleet.weights))
        for num_arrived, (arrival, model) in enumerate(zip(arrivals, models, strict=True)):
            self._finish_until(arrival)
            self._arrive(arrival, model)
            if num_arrived - self._num_ended > most:
                break
        last = arrivals[-1] if arrivals else 0.0
        self._finish_until(float("inf"))
        self._latency.num_failed = len(arrivals) - self._num_ended
        mean = self._num_ended / max(1, self._num_batches)
        busy = self._busy_s / max(last, 1e-9) / fleet.num_workers
        return Outcome(self._latency, min(1.0, busy), mean / fleet.batch_requests)

    def _arrive(self, now: float, model: int) -> None:
        workers = self._workers
        if now - self._polled_at >= self._fleet.polled_s:
            workers.poll()
            self._polled_at = now
        if self._policy is None:
            place = self._take_idle()
        else:
            place = self._policy(workers, model)
            workers.hold(place, 1)
        self._queues[place].add(model, now)
        if place in self._idle:
            self._start(place, now)

    def _take_idle(self) -> int:
        """The first worker that is idle, or any."""
        while self._first_idle:
            place = heapq.heappop(self._first_idle)
            if place in self._idle:
                return place
        return 0

    def _start(self, place: int, now: float) -> None:
        """Let a worker run its next batch, or be idle."""
        queues, cost = self._queues[place], self._fleet.cost
        if not queues.num_waiting:
            self._idle.add(place)
            if self._policy is None:
                heapq.heappush(self._first_idle, place)
            return
        self._idle.discard(place)
        batch = queues.take(self._fleet.batch_requests)
        seconds = cost.seconds(len(batch) * self._fleet.request_tokens)
        self._busy_s += seconds
        self._num_batches += 1
        heapq.heappush(self._ends, (now + seconds, place, batch))

    def _finish_until(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            end, place, batch = heapq.heappop(self._ends)
            self._num_ended += len(batch)
            for arrival in batch:
                self._latency.add(end - arrival)
            if self._policy is not None:
                self._workers.hold(place, -len(batch))
            self._start(place, end)


def goodput(
    fleet: Fleet, policy: str, duration_s: float, percent: float = 99.0, seed: int = 0
) -> tuple[float, Outcome | None]:
    """The highest Poisson rate with `percent` of requests within the objective, and the run at it; 0 for none."""
    search, best = RateSearch(fleet.capacity / 2, precision=0.03, least=fleet.capacity / 1000), None
    while (rate := search.next_rate) is not None:
        outcome = simulate(fleet, policy, rate, duration_s, seed)
        is_good = outcome.latency.percentile_s(percent) <= fleet.objective_s
        best = outcome if is_good else best
        search.tell(is_good=is_good)
    return search.best, best
