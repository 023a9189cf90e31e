"""Many models, many nights: one search after another under one budget. All state is in the ledgers."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from shoal.errors import ShoalError
from shoal.tuner.search import Progress
from shoal.tuner.tuning import Plan, Tuned, tune

__all__ = ["Result", "research"]


class Result(msgspec.Struct, frozen=True):
    """What came of a model; `problem` says why nothing did."""

    model: str
    tuned: Tuned | None = None
    problem: str = ""


def research(plans: Sequence[Plan], budget_s: float, on_entry: Progress) -> list[Result]:
    """Tune each model in turn until the budget is spent; a model that fails keeps no other from its turn.

    A search that was finished on another night costs nothing: its trials are found in its ledger.
    """
    ends_at = time.monotonic() + budget_s
    results = []
    for plan in plans:
        if time.monotonic() >= ends_at:
            results.append(Result(plan.model, problem="not begun: the budget is spent; the same command goes on"))
            continue
        try:
            results.append(Result(plan.model, tune(plan, on_entry)))
        except ShoalError as error:
            results.append(Result(plan.model, problem=error.message))
    return results
