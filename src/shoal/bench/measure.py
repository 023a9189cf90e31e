"""Several targets under the same load: generator processes, rounds that take turns, the search for the highest rate.

The generator always runs in processes of its own, so that drawing a progress bar never delays a request.
"""

from __future__ import annotations

import contextlib
import functools
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing import resource_tracker
from typing import Any

import msgspec

from shoal.bench.generator import send_load
from shoal.bench.plan import Arrivals, Load, Measured
from shoal.bench.targets import Target
from shoal.errors import NotReady
from shoal.lifeline import end_with_parent

__all__ = [
    "Generator",
    "RateSearch",
    "Trial",
    "find_rates",
    "generator",
    "interleave",
    "searches_from_closed_loops",
    "try_rate",
]

START_S = 0.05
"""From handing a load to the processes to its first arrival."""


class Generator:
    """Processes that send loads."""

    def __init__(self, pool: ProcessPoolExecutor, num_processes: int) -> None:
        self._pool = pool
        self._num_processes = num_processes

    def measure(self, load: Load) -> Measured:
        """Send a load, split over the processes, and wait for its end."""
        starts_at = time.time() + START_S
        parts: list[Future[Measured]] = []
        for number in range(self._num_processes):
            shared = msgspec.structs.replace(
                load,
                arrivals=load.arrivals.share(number, self._num_processes),
                requests=load.requests[number :: self._num_processes] or load.requests,
                models=load.models[number :: self._num_processes] or load.models,
                api_keys=load.api_keys[number :: self._num_processes] or load.api_keys,
                seed=load.seed * self._num_processes + number,
            )
            parts.append(self._pool.submit(send_load, shared, starts_at))
        _wait(parts)
        return Measured.sum([part.result() for part in parts], is_parallel=True)


def _wait(futures: Sequence[Future[Any]]) -> None:
    """Wait for all; on Ctrl-C end the processes, which would otherwise send to the end what they were given."""
    try:
        # A signal that another thread was given wakes nobody who waits without end: Ctrl-C is looked for now and then.
        while wait(futures, timeout=0.5).not_done:
            continue
    except KeyboardInterrupt:
        for process in multiprocessing.active_children():
            process.terminate()
        raise


@contextlib.contextmanager
def generator(num_processes: int) -> Iterator[Generator]:
    """Generator processes until the block ends, already started."""
    context = multiprocessing.get_context("spawn")
    tie = functools.partial(_serve_parent, os.getpid())
    with ProcessPoolExecutor(num_processes, mp_context=context, initializer=tie) as pool:
        with _interrupts_held_back():
            naps = [pool.submit(time.sleep, 0.05) for _ in range(num_processes)]  # one each: so all have to be there
        _wait(naps)
        yield Generator(pool, num_processes)


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Processes that are started here never see a Ctrl-C, not even before they can ignore it; ours comes afterwards.

    They inherit what is blocked. Here another thread may still be given it, so that it has to be noted, too.
    """
    resource_tracker.ensure_running()  # which would let interrupts through, did it start here
    pressed: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
    for number in pressed:
        signal.raise_signal(number)


def _serve_parent(parent: int) -> None:
    """End with the parent, however it ends; Ctrl-C is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent)


def interleave(
    generator: Generator,
    loads: Sequence[Load],
    num_rounds: int,
    on_stretch: Callable[[], None],
    finished: dict[str, list[Measured]] | None = None,
) -> dict[str, list[Measured]]:
    """Each load `num_rounds` times for its whole duration, taking turns, in an order that turns around each round.

    Args:
        on_stretch: called after each stretch.
        finished: filled with what is returned, for whoever is interrupted.

    Returns:
        Of each target by name, an entry a round.
    """
    measured = {} if finished is None else finished
    measured |= {load.target.name: [] for load in loads}
    for number in range(num_rounds):
        for load in loads if number % 2 == 0 else reversed(loads):
            stretch = msgspec.structs.replace(load, seed=load.seed * 1000 + number)
            measured[load.target.name].append(generator.measure(stretch))
            on_stretch()
    return measured


class RateSearch:
    """The search for the highest rate at which the limit holds: doubling (or halving) first, then bisection.

    Pure: it is told how a rate went and says which to try next.

    Args:
        start: first rate, in requests a second.
        precision: the search ends when the highest rate that went well and the lowest that did not are so close.
        least: rates below that are not tried.
        growth: factor between rates until the answer lies between two.

    Attributes:
        best: highest rate that went well so far; 0 for none.
    """

    def __init__(self, start: float, precision: float = 0.05, least: float = 0.1, growth: float = 2.0) -> None:
        self.best = 0.0
        self._too_much = math.inf
        self._next = start
        self._precision = precision
        self._least = least
        self._growth = growth

    @property
    def next_rate(self) -> float | None:
        """What to try now; None if the search is over."""
        is_close = self._too_much <= self.best * (1 + self._precision)
        return None if is_close or self._too_much <= self._least else self._next

    def tell(self, *, is_good: bool) -> None:
        """How `next_rate` went."""
        if is_good:
            self.best = self._next
        else:
            self._too_much = self._next
        if math.isinf(self._too_much):
            self._next = self._growth * self.best
        elif self.best == 0.0:
            self._next = self._too_much / self._growth
        else:
            self._next = math.sqrt(self.best * self._too_much)


class Trial(msgspec.Struct):
    """A rate that was tried.

    Attributes:
        is_within: whether the limit held. Where it held with doubts about the generator, nothing is known.
        doubts: see `Measured.doubts`.
    """

    rate: float
    is_within: bool
    measured: Measured
    doubts: list[str]

    @property
    def is_good(self) -> bool:
        return self.is_within and not self.doubts


def find_rates(
    generator: Generator,
    loads: Sequence[Load],
    searches: Mapping[str, RateSearch],
    limit_s: float,
    percent: float,
    on_trial: Callable[[Target, Trial], None],
) -> dict[str, list[Trial]]:
    """The trials that led to the highest Poisson rate with `percent` of requests within `limit_s`, target by target.

    Targets take turns trial by trial.

    Args:
        searches: of each target by name, see `searches_from_closed_loops`.
    """
    trials: dict[str, list[Trial]] = {load.target.name: [] for load in loads}
    while any(search.next_rate is not None for search in searches.values()):
        for load in loads:
            name = load.target.name
            rate = searches[name].next_rate
            if rate is not None:
                trial = try_rate(generator, load, rate, limit_s, percent)
                trials[name].append(trial)
                on_trial(load.target, trial)
                searches[name].tell(is_good=trial.is_good)
    return trials


def searches_from_closed_loops(generator: Generator, loads: Sequence[Load], concurrency: int) -> dict[str, RateSearch]:
    """Searches that start at half of what each target does in a closed loop.

    Raises:
        NotReady: a target answers nothing at all.
    """
    searches: dict[str, RateSearch] = {}
    for load in loads:
        closed = Arrivals("closed", concurrency=concurrency)
        first = generator.measure(msgspec.structs.replace(load, arrivals=closed, duration_s=min(2.0, load.duration_s)))
        if not first.num_ok:
            raise NotReady(f"{load.target.name} answers nothing: {', '.join(first.errors) or 'no reply'}.")
        searches[load.target.name] = RateSearch(max(0.2, first.requests_per_s / 2))
    return searches


def try_rate(generator: Generator, load: Load, rate: float, limit_s: float, percent: float) -> Trial:
    """One load at a Poisson rate, drawn from the load's seed and the rate: whether it holds the limit."""
    load = msgspec.structs.replace(
        load,
        arrivals=Arrivals("poisson", rate=rate),
        seed=load.seed + int(rate * 1000),
        timeout_s=max(1.0, 4 * limit_s),  # what takes longer has failed: nobody needs to know by how much
    )
    measured = generator.measure(load)
    return Trial(rate, measured.latency.percentile_s(percent) <= limit_s, measured, measured.doubts(limit_s))
