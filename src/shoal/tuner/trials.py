"""The evaluator: real servers, real HTTP, open-loop load. It is frozen while a search runs, and trusts no proposer.

A fit starts a server with the configuration, times lists of several sizes over HTTP in turns with the default's, so
that a machine that is slower for a while is not taken for a slow configuration, puts its vectors to the gate, and
predicts. A race keeps one server alive for each configuration, all idle but the one under load, and lets the load take
turns.
"""

from __future__ import annotations

import contextlib
import logging
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.bench.measure import Generator, generator
from shoal.bench.plan import Arrivals, Load, Measured
from shoal.bench.targets import Target
from shoal.errors import ShoalError
from shoal.settings import ModelSettings, WorkerSettings
from shoal.tuner.gate import Fidelity, bounds_of, compare
from shoal.tuner.objectives import Objective, Raced
from shoal.tuner.prediction import Cost, fit_cost, overhead_per_request
from shoal.tuner.search import Fit, TrialFailed
from shoal.tuner.serving import Serving
from shoal.tuner.space import Configuration, name_of, worker_settings

__all__ = ["FIT_STRETCHES", "Task", "Trials"]

logger = logging.getLogger(__name__)

NUM_PROBES = 96
_LIST_SIZES = (1, 4, 16, 64)
_LIST_SHARE, _WARMING_SHARE = 0.35, 0.15
"""Of the shortest load: so long lists of a size are timed, and a server is warmed up before."""

FIT_STRETCHES = 2 * (_WARMING_SHARE + len(_LIST_SIZES) * _LIST_SHARE)
"""Shortest loads that a fit lasts; half of it is the default's."""

_USUAL_PERCENT = 20.0
"""What a list takes if nothing disturbs it: that is S. What it takes longer is spread."""

_SPREAD_SIZES = _LIST_SIZES[:-1]
_SPREAD_PERCENTS = tuple(2.5 + 5.0 * place for place in range(20))
_MOST_LENGTHS = 256
_CALIBRATING_CONNECTIONS = 32

Matrix = npt.NDArray[np.float32]


class Task(Protocol):
    """A task's metric, such as nDCG@10, with the vectors of a server; higher is better."""

    @property
    def digest(self) -> str:
        """Differs for tasks whose metrics are not to be compared."""
        ...

    def __call__(self, serving: Serving) -> float: ...


class _Timed(msgspec.Struct, frozen=True):
    """Lists of one size: their tokens, the seconds that they usually take, and by which factors some take longer."""

    num_tokens: int
    seconds: float
    factors: tuple[float, ...]


class _Standard(msgspec.Struct, frozen=True):
    """What every configuration is held against.

    Attributes:
        precision: number format of the default.
        samples: of lists; what the machine takes longer for them later on, it takes longer for all.
        lengths: tokens of texts.
        overhead_s: f, see `prediction.overhead_per_request`.
        vectors: of the probes, in float32.
        metric: the task's, in float32.
    """

    precision: str
    samples: list[_Timed]
    lengths: list[int]
    overhead_s: float
    vectors: Matrix
    metric: float | None


class Trials:
    """Measures configurations of one model on this machine. See `search.Evaluator`.

    Args:
        texts: what load is made of; the first 96 are the gate's probes too.
        directory: for the servers' logs.
        task: what the gate watches besides vectors in other number formats, where the user has a task.
    """

    def __init__(
        self,
        model: str,
        base: WorkerSettings,
        models: ModelSettings,
        objective: Objective,
        texts: Sequence[str],
        directory: Path,
        task: Task | None = None,
    ) -> None:
        self._model = model
        self._base = base
        self._models = models
        self._objective = objective
        self._texts = list(texts)
        self._probes = self._texts[:NUM_PROBES]
        self._directory = directory
        self._task = task
        self._alive: dict[str, Serving] = {}
        self._stack = contextlib.ExitStack()
        self._standard: _Standard | None = None

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._generator: Generator = self._stack.enter_context(generator(1))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._alive):
            self._stop(name)
        self._stack.close()

    def fit(self, configuration: Configuration) -> Fit:
        """See `search.Evaluator.fit`."""
        self._keep_only([name_of({})])
        standard = self._standard = self._standard or self._measure_standard()
        if "runtime" not in configuration and configuration.get("precision") == standard.precision:
            raise TrialFailed(f"auto, the default, is {standard.precision} here", is_of_no_use=True)
        with self._serve(configuration) as serving:
            loaded = self._loaded(serving)
            usual, ours = self._time_lists(self._start(name_of({}), {}), serving)
            vectors = serving.vectors(self._probes)
            metrics = self._metrics(serving, loaded["precision"], standard)
        fidelity = compare(vectors, standard.vectors, bounds_of(loaded["precision"]), metrics)
        slowdown = _slowdown(usual, standard.samples)
        cost = fit_cost([(one.num_tokens, one.seconds / slowdown) for one in ours], loaded["quantum_tokens"])
        cost = msgspec.structs.replace(cost, f_s=standard.overhead_s, spread=_spread(ours))
        figures = _figures(loaded, cost, fidelity, metrics) | {"slowdown": round(slowdown, 3)}
        if not fidelity.is_kept:
            raise TrialFailed(fidelity.problem, is_of_no_use=True, figures=figures)
        facts = {name: str(loaded[name]) for name in ("runtime", "version", "device", "precision")}
        return Fit(self._objective.predict(cost, standard.lengths), figures, facts)

    def race(self, configurations: Sequence[Configuration], seed: int, effort: float) -> list[Raced]:
        """See `search.Evaluator.race`."""
        names = [name_of(one) for one in configurations]
        self._keep_only(names)
        raced = dict.fromkeys(names, Raced())
        targets = []
        for name, configuration in zip(names, configurations, strict=True):
            try:
                serving = self._start(name, configuration)
                serving.vectors(self._probes[:1])
                targets.append(Target(name, serving.kind, serving.url, serving.model))
            except TrialFailed as failure:
                logger.warning("%s does not race: %s", name, failure.message)
                self._stop(name)
        try:
            found = self._objective.measure(self._generator, targets, self._texts, seed, effort)
        except ShoalError as error:
            logger.warning("a race failed: %s", error)
        else:
            raced |= {target.name: one for target, one in zip(targets, found, strict=True)}
            _warn_of_failures(raced)
        return [raced[name] for name in names]

    def _measure_standard(self) -> _Standard:
        """From the default configuration; and from one in float32, where the default has another format."""
        serving = self._start(name_of({}), {})
        precision = self._loaded(serving)["precision"]
        lengths = serving.lengths(self._texts[:_MOST_LENGTHS])
        [samples] = self._time_lists(serving)
        closed = Arrivals("closed", concurrency=_CALIBRATING_CONNECTIONS)
        measured = self._measure(serving, closed, 1, self._objective.stretch_s)
        if not measured.requests_per_s:
            raise TrialFailed("the default configuration answers nothing")
        vectors, metric = self._judged(serving)
        if precision not in ("float32", ""):
            with self._serve({"precision": "float32"}) as serving:
                self._loaded(serving)
                vectors, metric = self._judged(serving)
        cost = fit_cost([(one.num_tokens, one.seconds) for one in samples], 1 << 15)
        mean = statistics.fmean(lengths)
        overhead_s = overhead_per_request(cost, mean, measured.requests_per_s, _CALIBRATING_CONNECTIONS)
        return _Standard(precision, samples, lengths, overhead_s, vectors, metric)

    def _judged(self, serving: Serving) -> tuple[Matrix, float | None]:
        return serving.vectors(self._probes), None if self._task is None else self._task(serving)

    def _metrics(self, serving: Serving, precision: str, standard: _Standard) -> tuple[float, float] | None:
        """The task's metric here and in float32; only where the number format differs, as nothing else moves it."""
        if self._task is None or standard.metric is None or precision in ("float32", ""):
            return None
        return self._task(serving), standard.metric

    def _loaded(self, serving: Serving) -> dict[str, Any]:
        card = serving.wait_ready()
        loaded: dict[str, Any] = card["loaded"][0]
        return {"precision": "", "quantum_tokens": 1 << 15, "a_s": 0.0, "c_s": 0.0, "version": "", **loaded}

    def _time_lists(self, *servings: Serving) -> list[list[_Timed]]:
        """Tokens and seconds of lists of several sizes over HTTP, of each server; they take turns."""
        samples: list[list[_Timed]] = [[] for _ in servings]
        for serving in servings:
            self._measure(serving, Arrivals("closed", concurrency=1), 1, _WARMING_SHARE * self._objective.stretch_s)
        for size in _LIST_SIZES:
            for found, serving in zip(samples, servings, strict=True):
                measured = self._measure(
                    serving, Arrivals("closed", concurrency=1), size, _LIST_SHARE * self._objective.stretch_s
                )
                if not measured.num_ok:
                    raise TrialFailed(f"it answers no list of {size} texts: {', '.join(measured.errors) or 'no reply'}")
                found.append(_timed(measured))
        return samples

    def _measure(self, serving: Serving, arrivals: Arrivals, size: int, duration_s: float) -> Measured:
        target = Target("trial", serving.kind, serving.url, serving.model)
        requests = [self._texts[start : start + size] for start in range(0, len(self._texts), size)]
        return self._generator.measure(Load(target, arrivals, requests, duration_s))

    def _serve(self, configuration: Configuration) -> Serving:
        settings = worker_settings(configuration, self._base)
        return Serving(self._model, settings, self._models, self._directory / "servers.log")

    def _start(self, name: str, configuration: Configuration) -> Serving:
        if name not in self._alive:
            self._alive[name] = self._serve(configuration)
            self._alive[name].wait_ready()
        return self._alive[name]

    def _stop(self, name: str) -> None:
        self._alive.pop(name).stop()

    def _keep_only(self, names: Sequence[str]) -> None:
        for name in [name for name in self._alive if name not in names]:
            self._stop(name)


def _warn_of_failures(raced: dict[str, Raced]) -> None:
    """Requests that fail count as slower than any limit; that a server failed, and was not slow, must be seen."""
    for name, one in raced.items():
        if one.errors:
            reasons = ", ".join(f"{reason} ({count})" for reason, count in one.errors.items())
            logger.warning("%s: %d requests failed: %s", name, sum(one.errors.values()), reasons)


def _slowdown(now: Sequence[_Timed], then: Sequence[_Timed]) -> float:
    """How much longer the same lists of the default configuration take than at first."""
    ratios = [ours.seconds / theirs.seconds for ours, theirs in zip(now, then, strict=True)]
    return math.exp(statistics.fmean(map(math.log, ratios)))


def _timed(measured: Measured) -> _Timed:
    seconds = measured.latency.percentile_s(_USUAL_PERCENT)
    factors = tuple(measured.latency.percentile_s(percent) / seconds for percent in _SPREAD_PERCENTS)
    return _Timed(round(measured.num_tokens / measured.num_ok), seconds, factors)


def _spread(samples: Sequence[_Timed]) -> tuple[float, ...]:
    """The factors of lists of all sizes of which there are enough, percentile by percentile."""
    columns = zip(*(one.factors for one in samples[: len(_SPREAD_SIZES)]), strict=True)
    return tuple(map(statistics.fmean, columns))


def _figures(
    loaded: dict[str, Any], cost: Cost, fidelity: Fidelity, metrics: tuple[float, float] | None
) -> dict[str, float]:
    figures = {
        "a_ms": loaded["a_s"] * 1e3,
        "c_us": loaded["c_s"] * 1e6,
        "quantum_tokens": float(loaded["quantum_tokens"]),
        "http_a_ms": cost.a_s * 1e3,
        "http_c_us": cost.c_s * 1e6,
        "f_us": cost.f_s * 1e6,
        "spread": statistics.fmean(cost.spread),
        "worst_spread": max(cost.spread),
        "p1_cosine": fidelity.p1_cosine,
        "overlap": fidelity.overlap,
    }
    if metrics is not None:
        figures |= {"metric": metrics[0], "float32_metric": metrics[1]}
    return {name: float(f"{value:.6g}") for name, value in figures.items()}
