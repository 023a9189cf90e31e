"""The search: model first, trials second, and nothing is believed that was not measured again.

1. `fit`: every proposed configuration is loaded once, its cost model fitted, its vectors put to the fidelity gate, and
   its figure predicted. What fails is an outcome like any other.
2. `rung N`: the default and the most promising race each other, all in the same minutes; the better half goes on, with
   longer races (successive halving).
3. `final`: the winner is put together again, a setting at a time, and each must beat what stands without it, in pairs
   on seeds that nobody has seen, until the interval leaves no doubt. The best of many noisy figures is too good to be
   true; only these pairs count, and no setting rides along with another.

4. `beside N`: the winner in pairs with configurations that the user named, which the space need not hold: what an
   untuned server of another kind leaves on the table. They are fitted first of all, so that one that does not run is
   told of while somebody watches.

Everything finished is in the ledger first, and found there when the search is resumed; the budget is counted in the
ledger's own seconds, so it survives a restart as well. Knows no server: the evaluator does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from shoal.errors import ShoalError
from shoal.tuner.judging import Verdict, judge
from shoal.tuner.ledger import Entry, Ledger, Status
from shoal.tuner.objectives import Raced
from shoal.tuner.proposers import Proposer
from shoal.tuner.space import Configuration, Space, name_of

__all__ = ["Budget", "Evaluator", "Fit", "Outcome", "Progress", "TrialFailed", "search"]

FITTING_SHARE, RACING_SHARE = 0.35, 0.65
"""Of the budget: fitting ends at the first, racing at the second, the rest is for the final pairs."""

LEAST_FITS = 4
"""So many configurations are fitted beside the default, however short the budget."""

MOST_RACERS = 6
RUNG_EFFORTS = (1.0, 2.0)
LEAST_PAIRS, MOST_PAIRS = 4, 8
FINAL_SEED = 1_000_000
SIMPLICITY = 0.005
"""Share of its figure that each setting of a configuration costs it in a comparison: a tie goes to the simpler one."""


class TrialFailed(ShoalError):
    """A configuration could not be tried: refused, out of memory, crashed, or wrong.

    Attributes:
        is_of_no_use: whether it runs, but the gate refused its vectors, or it is the default by another name.
    """

    code = "trial_failed"

    def __init__(self, message: str, *, is_of_no_use: bool = False, figures: dict[str, float] | None = None) -> None:
        super().__init__(message)
        self.is_of_no_use = is_of_no_use
        self.figures = figures or {}


class Fit(msgspec.Struct, frozen=True):
    """What loading a configuration once has told; `predicted` is its figure, higher being better."""

    predicted: float
    figures: dict[str, float] = {}
    facts: dict[str, str] = {}


class Evaluator(Protocol):
    """Measures configurations; frozen while a search runs: what is measured, and how, is none of the proposer's."""

    def fit(self, configuration: Configuration) -> Fit:
        """Load it, fit its costs, pass its vectors through the gate.

        Raises:
            TrialFailed: it cannot be loaded, or does not pass.
        """
        ...

    def race(self, configurations: Sequence[Configuration], seed: int, effort: float) -> list[Raced]:
        """What came of each, all measured in turns under the same load.

        Args:
            effort: how long, 1 being the shortest that tells anything.
        """
        ...


class Budget(msgspec.Struct, frozen=True):
    """Seconds of trials, as the ledger counts them."""

    total_s: float

    def is_spent(self, ledger: Ledger, share: float = 1.0) -> bool:
        return sum(entry.seconds for entry in ledger.entries) >= share * self.total_s


class Outcome(msgspec.Struct, frozen=True):
    """What a search came to.

    Attributes:
        winner: the configuration to use; {} = the default, because nothing was better beyond doubt.
        verdicts: of the finalists by name.
        is_complete: whether the search ran to its end within the budget.
        beside: how many times better the winner is than configurations that the user named, by name.
    """

    winner: Configuration
    verdicts: dict[str, Verdict]
    is_complete: bool
    beside: dict[str, Verdict] = {}


class Progress(Protocol):
    """Called with each entry once, in order."""

    def __call__(self, entry: Entry, is_new: bool) -> None:
        """`is_new` is whether it was measured now, and not found in the ledger."""
        ...


def search(
    space: Space,
    proposer: Proposer,
    evaluator: Evaluator,
    ledger: Ledger,
    budget: Budget,
    on_entry: Progress,
    beside: Sequence[Configuration] = (),
) -> Outcome:
    """Find the best configuration of a space.

    Args:
        beside: what the winner is held against in the end, in pairs as well. They do not compete, and the budget does
            not end them.

    Raises:
        TrialFailed: not even the default runs.
    """
    run = _Search(space, evaluator, ledger, on_entry)
    default = run.fit({})
    if default.status != "measured":
        raise TrialFailed(f"The default configuration does not run: {default.reason}.")
    for other in beside:
        run.fit_outside(other)
    _explore(run, proposer, ledger, budget)
    survivors = _race(run, ledger, budget)
    outcome = _prove(run, survivors, ledger, budget)
    compared = {name_of(other): _beside(run, outcome.winner, other) for other in beside if other != outcome.winner}
    return msgspec.structs.replace(outcome, beside={name: verdict for name, verdict in compared.items() if verdict})


class _Search:
    """Trials that are run once, and found in the ledger afterwards."""

    def __init__(self, space: Space, evaluator: Evaluator, ledger: Ledger, on_entry: Progress) -> None:
        self.space = space
        self._evaluator = evaluator
        self._ledger = ledger
        self._on_entry = on_entry
        self._told: set[tuple[str, str, int]] = set()

    @property
    def entries(self) -> list[Entry]:
        """Without fits of what the space does not hold: they neither race nor lead a proposer."""
        entries = self._ledger.entries
        return [entry for entry in entries if entry.stage != "fit" or self.space.holds(entry.configuration)]

    def fit(self, configuration: Configuration) -> Entry:
        return self._once("fit", configuration, 0, lambda: self._fit(configuration))

    def race(
        self, stage: str, configurations: Sequence[Configuration], seed: int, effort: float, about: Configuration
    ) -> dict[str, float]:
        """Figures by name of configuration."""
        names = [name_of(configuration) for configuration in configurations]

        def run() -> Entry:
            raced = dict(zip(names, self._evaluator.race(configurations, seed, effort), strict=True))
            figures = {name: one.figure for name, one in raced.items()}
            points = {name: one.points for name, one in raced.items()}
            return Entry(stage, about, "measured", seed, figures, points)

        return self._once(stage, about, seed, run).figures

    def fit_outside(self, configuration: Configuration) -> Entry:
        """Fit what the space does not hold."""
        return self._once("fit", configuration, 0, lambda: self._try(configuration))

    def conclude(
        self, stage: str, configuration: Configuration, verdict: Verdict, status: Status, reason: str
    ) -> Entry:
        figures = {"ratio": verdict.ratio, "low": verdict.low, "high": min(verdict.high, 1e9)}
        entry = Entry(stage, configuration, status, figures=figures, reason=reason)
        return self._once(stage, configuration, 0, lambda: entry)

    def _fit(self, configuration: Configuration) -> Entry:
        try:
            self.space.check(configuration)
        except ShoalError as error:
            return Entry("fit", configuration, "crash", reason=error.message)
        return self._try(configuration)

    def _try(self, configuration: Configuration) -> Entry:
        try:
            fit = self._evaluator.fit(configuration)
        except TrialFailed as failure:
            status: Status = "discard" if failure.is_of_no_use else "crash"
            return Entry("fit", configuration, status, figures=failure.figures, reason=failure.message)
        except ShoalError as error:
            return Entry("fit", configuration, "crash", reason=error.message)
        figures = {"predicted": fit.predicted, **fit.figures}
        return Entry("fit", configuration, "measured", figures=figures, facts=fit.facts)

    def _once(self, stage: str, configuration: Configuration, seed: int, run: Callable[[], Entry]) -> Entry:
        entry = self._ledger.find(stage, configuration, seed)
        is_new = entry is None
        if entry is None:
            started = time.monotonic()
            entry = run()
            entry = msgspec.structs.replace(
                entry, seconds=round(time.monotonic() - started, 3), at=round(time.time(), 3)
            )
            self._ledger.write(entry)
        if entry.key not in self._told:
            self._told.add(entry.key)
            self._on_entry(entry, is_new)
        return entry


def _explore(run: _Search, proposer: Proposer, ledger: Ledger, budget: Budget) -> None:
    for entry in list(ledger.entries):  # a resumed search: what is known is shown, and not proposed again
        if entry.stage == "fit" and entry.configuration:
            run.fit(entry.configuration)
    while proposed := proposer.propose(run.space, run.entries):
        new = [one for one in proposed if ledger.find("fit", one) is None]
        for configuration in new:
            num_fitted = sum(entry.stage == "fit" for entry in run.entries)
            if num_fitted > LEAST_FITS and budget.is_spent(ledger, FITTING_SHARE):
                return
            run.fit(configuration)
        if not new:
            return


def _race(run: _Search, ledger: Ledger, budget: Budget) -> list[Configuration]:
    """The configurations that came through all rungs, best first, without the default."""
    fits = [entry for entry in run.entries if entry.stage == "fit" and entry.status == "measured"]
    promising = sorted(
        (entry for entry in fits if entry.configuration),
        key=lambda entry: -_handicapped(entry.figures["predicted"], entry.configuration),
    )
    racers = [entry.configuration for entry in promising[: MOST_RACERS - 1]]
    for number, effort in enumerate(RUNG_EFFORTS, 1):
        if not racers or (number > 1 and budget.is_spent(ledger, RACING_SHARE)):
            break
        figures = run.race(f"rung {number}", [{}, *racers], number, effort, {})
        racers = sorted(racers, key=lambda one: -_handicapped(figures.get(name_of(one), 0.0), one))
        racers = racers[: max(1, len(racers) // 2)]
    return racers


def _handicapped(figure: float, configuration: Configuration) -> float:
    return figure * (1 - SIMPLICITY * len(configuration))


def _prove(run: _Search, survivors: Sequence[Configuration], ledger: Ledger, budget: Budget) -> Outcome:
    """Every setting of the best survivor must beat what stands without it; then the next survivor may try."""
    standing: Configuration = {}
    verdicts: dict[str, Verdict] = {}
    for survivor in survivors:
        for name in _by_promise(survivor, ledger):
            candidate = {**standing, name: survivor[name]}
            if budget.is_spent(ledger) and verdicts:
                return Outcome(standing, verdicts, False)
            if candidate == standing or name_of(candidate) in verdicts:
                continue
            verdict = _pairs(run, candidate, standing, ledger, budget)
            run.conclude("verdict", candidate, verdict, "keep" if verdict.is_better else "discard", verdict.text())
            verdicts[name_of(candidate)] = verdict
            if verdict.is_better:
                standing = candidate
        if standing:
            break
    return Outcome(standing, verdicts, True)


def _by_promise(survivor: Configuration, ledger: Ledger) -> list[str]:
    """The settings of a configuration, the one that promises most by itself first."""

    def alone(name: str) -> float:
        entry = ledger.find("fit", {name: survivor[name]})
        return 0.0 if entry is None else entry.figures.get("predicted", 0.0)

    return sorted(survivor, key=alone, reverse=True)


def _pairs(run: _Search, candidate: Configuration, standing: Configuration, ledger: Ledger, budget: Budget) -> Verdict:
    pairs: list[tuple[float, float]] = []
    stage = f"final {name_of(candidate)}"
    while len(pairs) < MOST_PAIRS and not (len(pairs) >= LEAST_PAIRS and budget.is_spent(ledger)):
        pairs.append(_pair(run, stage, candidate, standing, len(pairs)))
    return judge(*zip(*pairs, strict=True))


def _pair(
    run: _Search, stage: str, candidate: Configuration, standing: Configuration, number: int
) -> tuple[float, float]:
    """Figures of both; who goes first alternates."""
    order = [standing, candidate] if number % 2 == 0 else [candidate, standing]
    figures = run.race(stage, order, FINAL_SEED + number, RUNG_EFFORTS[0], candidate)
    return figures[name_of(candidate)], figures[name_of(standing)]


def _beside(run: _Search, winner: Configuration, other: Configuration) -> Verdict | None:
    if run.fit_outside(other).status != "measured":
        return None
    stage = f"beside {name_of(other)}"
    pairs = [_pair(run, stage, winner, other, number) for number in range(MOST_PAIRS)]
    # What the other did not do at all has no ratio. Left out, the verdict says too little, and never too much.
    held = [pair for pair in pairs if pair[1] > 0] or pairs
    verdict = judge(*zip(*held, strict=True))
    num_none = sum(theirs <= 0 for _, theirs in pairs)
    none = f"; in {num_none} of {len(pairs)} pairs this one had no figure at all" if num_none else ""
    run.conclude("beside", other, verdict, "measured", f"the best is {verdict.text('this one')}{none}")
    return verdict
