"""From a plan to a profile, or to the reason why there is none, with an evaluator that measures nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from shoal.errors import InvalidRequest
from shoal.runtimes.knobs import Knob
from shoal.settings import ModelSettings, WorkerSettings
from shoal.tuner import tuning
from shoal.tuner.ledger import Entry
from shoal.tuner.objectives import LowestLatency, Raced
from shoal.tuner.proposers import Sweep
from shoal.tuner.search import Fit, TrialFailed
from shoal.tuner.space import Configuration, Space

FACTS = {"runtime": "fake", "version": "1", "device": "fake", "precision": "float32"}


class Evaluator:
    """Stands where `Trials` does. What is `wrong` does not run; everything else has the same figure in every race."""

    figure = 1.0

    def __init__(self, *arguments: Any) -> None:
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *arguments: object) -> None:
        return

    def fit(self, configuration: Configuration) -> Fit:
        if "wrong" in configuration.values():
            raise TrialFailed("the runtime refuses it")
        return Fit(1.0, facts=FACTS)

    def race(self, configurations: Sequence[Configuration], seed: int, effort: float) -> list[Raced]:
        return [Raced(self.figure, [(1.0, 1.0)]) for _ in configurations]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    monkeypatch.setattr(tuning, "Trials", Evaluator)
    monkeypatch.setattr(Evaluator, "figure", 1.0)
    return []


def run(directory: Path, told: list[Entry], values: tuple[str, ...], **other: Any) -> tuning.Tuned:
    plan = tuning.Plan(
        "fake:toy", directory / "search", directory / "profiles", ["text"], 60.0, Space((Knob("knob", values, ""),)),
        LowestLatency(1.0), Sweep(), WorkerSettings(runtime="fake"), ModelSettings(), **other,
    )  # fmt: skip
    return tuning.tune(plan, lambda entry, is_new: told.append(entry))


def test_a_search_that_measured_the_default_writes_a_profile(tmp_path: Path, told: list[Entry]) -> None:
    tuned = run(tmp_path, told, ("right", "wrong"))
    assert tuned.kept.file.exists()
    assert (tuned.profile.settings, tuned.profile.figures.default) == ({}, 1.0)


def test_a_search_in_which_nothing_else_ran_writes_none_and_says_so(tmp_path: Path, told: list[Entry]) -> None:
    with pytest.raises(TrialFailed, match=r"Nothing else ran \(1 tried and lost\).* no profile is written"):
        run(tmp_path, told, ("wrong",))
    assert not list((tmp_path / "profiles").glob("*.json"))
    assert "the runtime refuses it" in (tmp_path / "search" / "report.html").read_text()


def test_a_default_without_a_figure_makes_no_profile(
    tmp_path: Path, told: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evaluator, "figure", 0.0)
    with pytest.raises(TrialFailed, match="The default answered no load as the objective asks"):
        run(tmp_path, told, ("right",))
    assert not list((tmp_path / "profiles").glob("*.json"))


def test_profiles_that_cannot_be_written_are_noticed_before_the_first_trial(tmp_path: Path, told: list[Entry]) -> None:
    (tmp_path / "profiles").write_text("a file")
    with pytest.raises(InvalidRequest, match="Profiles cannot be written to") as refused:
        run(tmp_path, told, ("right",))
    assert "--profiles" in str(refused.value.hint)
    assert not told


def test_what_the_user_named_is_enough_to_measure_the_default(tmp_path: Path, told: list[Entry]) -> None:
    tuned = run(tmp_path, told, ("wrong",), beside=[{"knob": "other"}])
    assert tuned.kept.file.exists()
    assert tuned.profile.figures.default == 1.0
