"""What the arguments of `shoal tune` mean: a plan, or wrong usage by the name of the option. Runs nothing."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.errors import InvalidRequest
from shoal.settings import ModelSettings, TunerSettings, WorkerSettings

if TYPE_CHECKING:
    from shoal.tuner.objectives import Objective
    from shoal.tuner.proposers import Proposer
    from shoal.tuner.trials import Task
    from shoal.tuner.tuning import Plan

__all__ = ["plan_of", "task_of"]


def plan_of(
    model: str,
    directory: Path,
    worker: WorkerSettings,
    *,
    minutes: float,
    objective: str,
    p99_ms: float,
    rate: float,
    price_per_hour: float,
    seconds: float,
    text_file: Path | None,
    mix: str,
    knobs: tuple[str, ...],
    beside: tuple[str, ...],
    documents: Path | None,
    queries: Path | None,
    qrels: Path | None,
    most_documents: int,
    proposer: str,
    profiles: Path | None,
    replace: bool,
    models: ModelSettings,
    tuner: TunerSettings,
) -> Plan:
    """What the options ask for.

    Raises:
        click.UsageError: a value that cannot be.
    """
    from shoal.bench.texts import MIXES, read_texts, runs_of_words
    from shoal.catalog.profiles import profiles_directory, usable_cores
    from shoal.runtimes.survey import choose_runtime
    from shoal.tuner.space import check_values, open_space, parse_configuration
    from shoal.tuner.tuning import Plan

    worker = dataclasses.replace(worker, runtime=choose_runtime(worker.runtime))
    cores = usable_cores()
    with _naming("--knob"):
        space = open_space(worker.runtime, cores, knobs)
    with _naming("--beside"):
        named = [parse_configuration(text) for text in beside]
        for configuration in named:
            check_values(configuration, worker.runtime, cores)
    texts = read_texts(text_file) if text_file else runs_of_words(MIXES[mix], 1024, seed=7)
    return Plan(
        model,
        directory,
        profiles or profiles_directory(),
        texts,
        minutes * 60,
        space,
        _objective(objective, p99_ms, rate, price_per_hour, seconds),
        _proposer(proposer, tuner),
        dataclasses.replace(worker, profile="none"),  # a trial is what it says, whatever was proved before
        models,
        task_of(documents, queries, qrels, most_documents),
        named,
        replace,
    )


@contextlib.contextmanager
def _naming(option: str) -> Iterator[None]:
    """A wrong value is wrong usage of an option."""
    try:
        yield
    except InvalidRequest as error:
        message = f"{error.message} {error.hint or ''}".strip()
        raise click.BadParameter(message, param_hint=f"'{option}'") from None


def task_of(documents: Path | None, queries: Path | None, qrels: Path | None, most_documents: int) -> Task | None:
    """The task in three files, or None where none is given."""
    if documents is None and queries is None and qrels is None:
        return None
    if documents is None or queries is None or qrels is None:
        raise click.UsageError("--documents, --queries and --qrels go together.")
    from shoal.bench.neighbours import read_collection
    from shoal.bench.texts import read_named
    from shoal.tuner.task import Retrieval, shortened

    collection = read_collection(read_named(documents), read_named(queries), qrels)
    return Retrieval(shortened(collection, most_documents))


def _objective(name: str, p99_ms: float, rate: float, price_per_hour: float, seconds: float) -> Objective:
    from shoal.tuner.objectives import HighestRate, LeastCost, LowestLatency

    objectives: dict[str, Objective] = {
        "rate": HighestRate(p99_ms, seconds),
        "latency": LowestLatency(rate, seconds),
        "cost": LeastCost(price_per_hour, seconds),
    }
    return objectives[name]


def _proposer(name: str, tuner: TunerSettings) -> Proposer:
    from shoal.tuner.proposers import LLM, Optuna, Sweep

    if name == "optuna":
        return Optuna()
    if name == "llm":
        if not tuner.proposer_url or not tuner.proposer_model:
            raise InvalidRequest("A language model proposes: give --proposer-url and --proposer-model.")
        return LLM(tuner.proposer_url, tuner.proposer_model, tuner.proposer_key)
    return Sweep()
