"""The search against an evaluator that knows the truth and adds noise: what is kept, what is not, what is repeated."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from shoal.errors import InvalidRequest
from shoal.runtimes.knobs import Knob
from shoal.settings import WorkerSettings
from shoal.tuner.ledger import Entry, Ledger, canonical
from shoal.tuner.objectives import Raced
from shoal.tuner.proposers import Optuna, Sweep
from shoal.tuner.search import FINAL_SEED, Budget, Fit, Outcome, TrialFailed, search
from shoal.tuner.space import (
    Configuration,
    Space,
    check_values,
    name_of,
    open_space,
    parse_configuration,
    worker_settings,
)

SPACE = Space(
    (
        Knob("threads", (1, 2), ""),
        Knob("no_op", ("a", "b"), ""),
        Knob("precision", ("int8", "broken"), ""),
    )
)


class Known:
    """An evaluator with a known truth; noise is drawn from a seed, and races are counted."""

    def __init__(self, seed: int, noise: float = 0.05, gains: dict[str, float] | None = None) -> None:
        self._random = random.Random(seed)
        self._noise = noise
        self._gains = gains or {}
        self.fits: list[str] = []
        self.races: list[tuple[str, int]] = []

    def _truth(self, configuration: Configuration) -> float:
        return 100.0 * math.prod(self._gains.get(f"{name}={value}", 1.0) for name, value in configuration.items())

    def _noisy(self, configuration: Configuration) -> float:
        return self._truth(configuration) * math.exp(self._random.gauss(0, self._noise))

    def fit(self, configuration: Configuration) -> Fit:
        self.fits.append(canonical(configuration))
        if configuration.get("precision") == "broken":
            raise TrialFailed("the runtime refuses it")
        if configuration.get("precision") == "int8":
            raise TrialFailed("p1 cosine to float32 is 0.5, below 0.99", is_of_no_use=True, figures={"p1_cosine": 0.5})
        return Fit(self._noisy(configuration))

    def race(self, configurations: Sequence[Configuration], seed: int, effort: float) -> list[Raced]:
        self.races.append((" | ".join(sorted(map(name_of, configurations))), seed))
        return [Raced(self._noisy(one)) for one in configurations]


def run(
    directory: Path,
    evaluator: Known,
    space: Space = SPACE,
    beside: Sequence[Configuration] = (),
    told: list[tuple[Entry, bool]] | None = None,
) -> Outcome:
    def on_entry(entry: Entry, is_new: bool) -> None:
        if told is not None:
            told.append((entry, is_new))

    with Ledger(directory / "ledger.jsonl", {"model": "toy"}) as ledger:
        return search(space, Sweep(), evaluator, ledger, Budget(1e9), on_entry, beside)


def entries(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (directory / "ledger.jsonl").read_bytes().splitlines()[1:]]


def test_a_real_gain_is_found_and_kept(tmp_path: Path) -> None:
    outcome = run(tmp_path, Known(0, gains={"threads=1": 1.4}))
    assert outcome.winner == {"threads": 1}
    assert outcome.is_complete
    assert 1.2 < outcome.verdicts["threads=1"].ratio < 1.6


def test_gains_add_up(tmp_path: Path) -> None:
    outcome = run(tmp_path, Known(1, noise=0.02, gains={"threads=1": 1.3, "no_op=b": 1.3}))
    assert outcome.winner == {"threads": 1, "no_op": "b"}


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_never_kept(tmp_path: Path, seed: int) -> None:
    space = Space((Knob("no_op", ("a", "b", "c", "d"), ""), Knob("other", (1, 2), "")))
    assert run(tmp_path, Known(seed, noise=0.08), space).winner == {}


def test_the_winner_is_held_against_what_the_user_names(tmp_path: Path) -> None:
    """It need not be in the space; what does not run is left out; nothing of it is measured twice."""
    gains = {"threads=1": 1.4, "runtime=slow": 0.5}
    beside: list[Configuration] = [{"runtime": "slow"}, {"precision": "broken"}, {"threads": 1}]
    outcome = run(tmp_path, Known(0, gains=gains), beside=beside)
    assert outcome.winner == {"threads": 1}
    assert list(outcome.beside) == ["runtime=slow"]
    assert 2.3 < outcome.beside["runtime=slow"].ratio < 3.4
    told: list[tuple[Entry, bool]] = []
    resumed = Known(1, gains=gains)
    assert run(tmp_path, resumed, beside=beside, told=told).beside == outcome.beside
    assert (resumed.fits, resumed.races) == ([], [])
    assert told
    assert not any(is_new for _, is_new in told)


def test_what_the_user_names_is_tried_first_and_never_competes(tmp_path: Path) -> None:
    evaluator = Known(0, gains={"threads=1": 1.4, "runtime=fast": 9.0})
    beside: list[Configuration] = [{"runtime": "fast"}, {"precision": "broken"}]
    told: list[tuple[Entry, bool]] = []
    outcome = run(tmp_path, evaluator, beside=beside, told=told)
    assert [entry.configuration for entry, _ in told[:3]] == [{}, *beside]
    assert told[2][0].reason == "the runtime refuses it"
    assert all(is_new for _, is_new in told)
    assert outcome.winner == {"threads": 1}
    assert not any("fast" in race and seed < FINAL_SEED for race, seed in evaluator.races)
    assert outcome.beside["runtime=fast"].ratio < 1


class Faltering(Known):
    """Of every other pair, what is slow has no figure."""

    def race(self, configurations: Sequence[Configuration], seed: int, effort: float) -> list[Raced]:
        raced = super().race(configurations, seed, effort)
        falters = [seed % 2 == 1 and one.get("runtime") == "slow" for one in configurations]
        return [Raced() if is_none else one for one, is_none in zip(raced, falters, strict=True)]


def test_pairs_without_a_figure_beside_do_not_count_as_equal(tmp_path: Path) -> None:
    evaluator = Faltering(0, gains={"threads=1": 1.4, "runtime=slow": 0.5})
    outcome = run(tmp_path, evaluator, beside=[{"runtime": "slow"}])
    assert outcome.beside["runtime=slow"].num_pairs == 4
    assert 2.3 < outcome.beside["runtime=slow"].ratio < 3.4
    (said,) = [one["reason"] for one in entries(tmp_path) if one["stage"] == "beside"]
    assert str(said).endswith("in 4 of 8 pairs this one had no figure at all")


def test_configurations_are_written_as_they_are_shown() -> None:
    written = "precision=float32 runtime=torch threads=1"
    assert parse_configuration(written) == {"precision": "float32", "runtime": "torch", "threads": 1}
    assert name_of(parse_configuration(written)) == written
    for wrong in ("torch", "runtime=", "=torch"):
        with pytest.raises(InvalidRequest, match="is not name=value"):
            parse_configuration(wrong)


def test_a_loss_is_not_kept(tmp_path: Path) -> None:
    assert run(tmp_path, Known(0, gains={"threads=1": 0.5, "threads=2": 0.7})).winner == {}


def test_what_fails_is_recorded_with_its_reason(tmp_path: Path) -> None:
    evaluator = Known(0)
    run(tmp_path, evaluator)
    told = {canonical(dict(one["configuration"])): one for one in entries(tmp_path) if one["stage"] == "fit"}
    assert told['{"precision":"broken"}']["status"] == "crash"
    assert told['{"precision":"broken"}']["reason"] == "the runtime refuses it"
    unfaithful = told['{"precision":"int8"}']
    assert unfaithful["status"] == "discard"
    assert unfaithful["figures"] == {"p1_cosine": 0.5}
    assert not any("int8" in race or "broken" in race for race, _ in evaluator.races)


def test_a_default_that_does_not_run_ends_the_search(tmp_path: Path) -> None:
    class Broken(Known):
        def fit(self, configuration: Configuration) -> Fit:
            raise TrialFailed("no such model")

    with pytest.raises(TrialFailed, match="no such model"):
        run(tmp_path, Broken(0))


class Killed(BaseException):
    """The process is gone."""


class Mortal(Known):
    """Dies in the trial after so many."""

    def __init__(self, trials_to_live: int) -> None:
        super().__init__(0, gains={"threads=1": 1.4})
        self._left = trials_to_live

    def _live(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Killed

    def fit(self, configuration: Configuration) -> Fit:
        self._live()
        return super().fit(configuration)

    def race(self, configurations: Sequence[Configuration], seed: int, effort: float) -> list[Raced]:
        self._live()
        return super().race(configurations, seed, effort)


@pytest.mark.parametrize("trials_to_live", range(1, 19))
def test_a_killed_search_repeats_nothing(tmp_path: Path, trials_to_live: int) -> None:
    dying = Mortal(trials_to_live)
    try:
        run(tmp_path, dying)
    except Killed:
        pass
    else:
        assert trials_to_live > 14, "the search was over before it was killed"
    before = entries(tmp_path)
    resumed = Known(1, gains={"threads=1": 1.4})
    assert run(tmp_path, resumed).winner == {"threads": 1}
    assert entries(tmp_path)[: len(before)] == before
    finished = {canonical(dict(one["configuration"])) for one in before if one["stage"] == "fit"}
    assert not finished & set(resumed.fits)
    seeds = {one["seed"] for one in before if str(one["stage"]).startswith("final")}
    assert not seeds & {seed for _, seed in resumed.races}


def test_a_ledger_survives_kill_9_at_any_byte(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    code = (
        "import sys; from pathlib import Path; from shoal.tuner.ledger import Entry, Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]), {'model': 'toy'})\n"
        "for number in range(10**6):\n"
        "    ledger.write(Entry('fit', {'knob': number}, 'measured'))\n"
        "    print(number, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = [int(process.stdout.readline()) for _ in range(50)]
    process.kill()
    told += [int(line) for line in process.stdout.read().split("\n")[:-1]]
    process.stdout.close()
    process.wait()
    with path.open("ab") as file:
        file.write(b'{"stage":"fit","configuration":{"kn')  # what a kill in the middle of a write leaves
    with Ledger(path, {"model": "toy"}) as ledger:
        known = [entry.configuration["knob"] for entry in ledger.entries]
        assert known[: len(told)] == told
        assert known == list(range(len(known)))
        ledger.write(Entry("fit", {"knob": "next"}, "measured"))
    with Ledger(path, {"model": "toy"}) as ledger:
        assert ledger.entries[-1].configuration == {"knob": "next"}


def test_a_ledger_is_one_search_s_at_a_time_and_its_servers_do_not_hold_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, {"model": "toy"}) as first:
        server = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
        with pytest.raises(InvalidRequest, match="Another search is running") as refused:
            Ledger(path, {"model": "toy"})
        assert "--directory" in str(refused.value.hint)
        first.write(Entry("fit", {}, "measured"))
    try:
        with Ledger(path, {"model": "toy"}) as second:
            assert len(second.entries) == 1
    finally:
        server.communicate()


def test_a_ledger_of_something_else_is_refused(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l", {"model": "one", "cores": 2}):
        pass
    with pytest.raises(InvalidRequest, match=r"about something else: model differs\."):
        Ledger(tmp_path / "l", {"model": "another", "cores": 2})
    with pytest.raises(InvalidRequest, match=r"else: cores, model, threads differ\.") as refused:
        Ledger(tmp_path / "l", {"model": "another", "cores": 1, "threads": 1})
    assert "--directory" in str(refused.value.hint)
    (tmp_path / "n").write_text("no ledger\n")
    with pytest.raises(InvalidRequest, match="is not a ledger: line 1: "):
        Ledger(tmp_path / "n", {})


def test_a_garbled_line_is_named_by_its_number(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l", {}) as ledger:
        ledger.write(Entry("fit", {}, "measured"))
        ledger.write(Entry("fit", {"threads": 1}, "measured"))
    whole = (tmp_path / "l").read_bytes().splitlines(keepends=True)
    (tmp_path / "l").write_bytes(b"".join((*whole[:2], b"\xff{]\n", *whole[2:])))
    with pytest.raises(InvalidRequest, match="is not a ledger: line 3: "):
        Ledger(tmp_path / "l", {})


def test_sweep_ends() -> None:
    known: list[Entry] = [Entry("fit", {}, "measured", figures={"predicted": 100.0})]
    for _ in range(100):
        proposed = Sweep().propose(SPACE, known)
        if not proposed:
            break
        known += [Entry("fit", one, "measured", figures={"predicted": 101.0 + len(one)}) for one in proposed]
    names = [canonical(entry.configuration) for entry in known]
    assert len(names) == len(set(names))
    assert len(known) > 1 + 2 * len(SPACE.knobs)


def test_optuna_proposes_what_is_new_and_in_the_space() -> None:
    pytest.importorskip("optuna")
    known = [Entry("fit", {}, "measured", figures={"predicted": 100.0})]
    while proposed := Optuna().propose(SPACE, known):
        for one in proposed:
            SPACE.check(one)
            assert canonical(one) not in {canonical(entry.configuration) for entry in known}
        known += [
            Entry("fit", one, "measured", figures={"predicted": 100.0 * one.get("threads", 3)}) for one in proposed
        ]
        if len(known) > 20:
            break
    assert len(known) > 12


def test_space_cut_to_some_knobs() -> None:
    space = open_space("openvino", 4, ("threads", "precision=float32,bfloat16"))
    assert [(knob.name, knob.values) for knob in space.knobs] == [
        ("threads", (1, 2, 3)),
        ("precision", ("float32", "bfloat16")),
    ]
    with pytest.raises(InvalidRequest, match="no knob 'thread'"):
        open_space("openvino", 4, ("thread",))
    with pytest.raises(InvalidRequest, match="threads is 9; it may be 1, 2, 3"):
        space.check({"threads": 9})


@pytest.mark.parametrize(
    ("knob", "words"),
    [
        ("c_s=abc", "c_s is 'abc'; it must be a number"),
        ("c_s=", "c_s is ''; it must be a number"),
        ("c_s=0.1,", "c_s is ''; it must be a number"),
        ("c_s=true", "c_s is True; it must be a number"),
        ("threads=1.5", "threads is 1.5; it must be a whole number"),
        ("threads=-1", "threads is -1; it must be at least 0"),
        ("precision=half", "precision is 'half'; it must be one of auto, float32"),
        ("precision=8", "precision is 8; it must be one of auto, float32"),
        ("layout=2", "layout is 2; it must be a word"),
        ("layout=", "layout is ''; it must have a value"),
    ],
)
def test_a_value_that_a_knob_cannot_have_is_refused_at_once(knob: str, words: str) -> None:
    runtime = "fake" if knob.startswith("c_s") else "openvino"
    with pytest.raises(InvalidRequest, match=re.escape(words)):
        open_space(runtime, 4, (knob,))


def test_a_value_that_a_knob_may_have_is_not() -> None:
    for runtime, knob in (("fake", "c_s=0,1e-5"), ("openvino", "threads=1,64"), ("openvino", "latency_objective_ms=9")):
        open_space(runtime, 4, (knob,))


@pytest.mark.parametrize(
    ("beside", "words"),
    [
        ("runtime=nope", "runtime is 'nope'; it must be one of auto, openvino, torch, fake"),
        ("c_s=x", "c_s is 'x'; it must be a number"),
        ("runtime=torch forward_tokens=x", "forward_tokens is 'x'; it must be a whole number"),
        ("threads=two", "threads is 'two'; it must be a whole number"),
        ("c_s=0.01,runtime=fake", "has a comma in its value"),
    ],
)
def test_what_the_winner_cannot_be_held_against_is_refused_at_once(beside: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(words)):
        check_values(parse_configuration(beside), "fake", 4)


def test_what_the_winner_may_be_held_against_is_not() -> None:
    check_values(parse_configuration("runtime=torch precision=float32 layout=padded device=cpu"), "fake", 4)


def test_configurations_are_settings_or_options_of_the_runtime() -> None:
    base = WorkerSettings(runtime_options='{"layout":"padded"}')
    settings = worker_settings({"threads": 1, "streams": 2}, base)
    assert settings.threads == 1
    assert json.loads(settings.runtime_options) == {"layout": "padded", "streams": 2}
