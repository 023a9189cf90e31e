"""Tuning one model, from its name to a profile: puts space, proposer, evaluator, ledger and report together."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shoal.bench.report import to_html
from shoal.catalog import resolve
from shoal.catalog.profiles import Figures, Profile, usable_cores
from shoal.settings import ModelSettings, WorkerSettings
from shoal.tuner.keeping import Kept, check_writable, keep
from shoal.tuner.ledger import Entry, Ledger
from shoal.tuner.objectives import Objective
from shoal.tuner.proposers import Proposer
from shoal.tuner.report import page_of, verified
from shoal.tuner.search import Budget, Outcome, Progress, TrialFailed, search
from shoal.tuner.space import Configuration, Space, name_of
from shoal.tuner.subject import subject_of
from shoal.tuner.trials import Task, Trials

__all__ = ["Plan", "Tuned", "tune"]


class Plan(msgspec.Struct, frozen=True):
    """What is to be tuned, and how.

    Attributes:
        directory: of ledger, logs and report; a ledger that lies there is continued.
        profiles: where the profile is written.
        texts: what load is made of.
        budget_s: seconds of trials.
        task: see `trials.Trials`.
        beside: see `search.search`.
        is_replacing: see `keeping.keep`.
    """

    model: str
    directory: Path
    profiles: Path
    texts: Sequence[str]
    budget_s: float
    space: Space
    objective: Objective
    proposer: Proposer
    worker: WorkerSettings
    models: ModelSettings
    task: Task | None = None
    beside: Sequence[Configuration] = ()
    is_replacing: bool = False


class Tuned(msgspec.Struct, frozen=True):
    """What came of it; `profile` is what this search found, which `kept` may not hold."""

    outcome: Outcome
    profile: Profile
    kept: Kept
    report_file: Path


def tune(plan: Plan, on_entry: Progress) -> Tuned:
    """Search, and write profile and report.

    Raises:
        TrialFailed: not even the default runs, or it has no figure; then no profile is written.
        ShoalError: the model is not to be had, the ledger is of another search, or no profile can be written.
    """
    check_writable(plan.profiles)
    spec = resolve(plan.model, plan.models)
    digest = plan.task.digest if plan.task else ""
    subject = subject_of(spec, plan.objective, plan.space, plan.texts, plan.worker, plan.models, digest)
    with (
        Ledger(plan.directory / "ledger.jsonl", subject) as ledger,
        Trials(plan.model, plan.worker, plan.models, plan.objective, plan.texts, plan.directory, plan.task) as trials,
    ):
        budget = Budget(plan.budget_s)
        outcome = search(plan.space, plan.proposer, trials, ledger, budget, on_entry, plan.beside)
        profile = _profile(spec.id, spec.revision, plan.objective, outcome, ledger)
        report = plan.directory / "report.html"
        shown = [("model", spec.id), ("objective", plan.objective.name), *_facts(ledger).items()]
        report.write_text(to_html(page_of(f"Tuning {spec.id}", ledger.entries, shown, plan.objective.unit)))
        if not profile.figures.default:
            raise TrialFailed(_without_figure(ledger, report))
        kept = keep(profile, plan.profiles, ledger, is_replacing=plan.is_replacing)
    return Tuned(outcome, profile, kept, report)


def _profile(model: str, revision: str, objective: Objective, outcome: Outcome, ledger: Ledger) -> Profile:
    name, facts = name_of(outcome.winner), _facts(ledger)
    fit = ledger.find("fit", outcome.winner) or Entry("fit", {}, "crash")
    races = _raced(ledger)
    steps = [verdict for verdict in outcome.verdicts.values() if verdict.is_better]  # each beat the one before it
    interval = {side: math.prod(getattr(verdict, side) for verdict in steps) for side in ("ratio", "low", "high")}
    figures = Figures(
        objective=objective.name,
        unit=objective.unit,
        predicted=fit.figures.get("predicted", 0.0),
        verified=_median(races.get(name, [])),
        default=_median(races.get("default", [])),
        p1_cosine=fit.figures.get("p1_cosine", 0.0),
        overlap=fit.figures.get("overlap", 0.0),
        **interval,
    )
    return Profile(
        model=model,
        revision=revision,
        runtime=facts["runtime"],
        version=facts["version"],
        device=facts["device"],
        settings=outcome.winner,
        a_s=fit.figures.get("a_ms", 0.0) / 1e3,
        c_s=fit.figures.get("c_us", 0.0) / 1e6,
        figures=figures,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        ledger=ledger.digest,
        cores=usable_cores(),
    )


def _raced(ledger: Ledger) -> dict[str, list[float]]:
    """Figures by name; those beside what the user named only where there are no others."""
    inside, beside = (
        verified([entry for entry in ledger.entries if entry.stage.startswith(stages)])
        for stages in (("rung", "final"), "beside ")
    )
    return inside or beside


def _without_figure(ledger: Ledger, report: Path) -> str:
    """Why there is nothing to make a profile of."""
    if _raced(ledger):
        return f"The default answered no load as the objective asks, so no profile is written; see {report}."
    lost = sum(entry.stage == "fit" and entry.status != "measured" for entry in ledger.entries)
    return f"Nothing else ran ({lost} tried and lost), so nothing was measured and no profile is written; see {report}."


def _facts(ledger: Ledger) -> dict[str, str]:
    """What the server of the default configuration said of itself."""
    default = ledger.find("fit", {})
    return {} if default is None else default.facts


def _median(figures: Sequence[float]) -> float:
    return sorted(figures)[len(figures) // 2] if figures else 0.0
