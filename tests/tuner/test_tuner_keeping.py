"""Which profile stands in the end: what a night proved is not erased by a minute that proved nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.catalog.profiles import Figures, Profile, save_profile, standing_profile
from shoal.cli.tuning_lines import standing_line
from shoal.tuner.keeping import keep
from shoal.tuner.ledger import Entry, Ledger

PROVEN: dict[str, Any] = {"threads": 1}
RACE = Entry("rung 1", {}, "measured", 1, {"default": 10.0, "threads=1": 9.0})


def profile(settings: dict[str, Any], date: str) -> Profile:
    figures = Figures(objective="rate", unit="requests/s", predicted=1.0, verified=1.0, default=1.0, ratio=1.25)
    return Profile(
        model="toy", runtime="fake", version="1", device="fake", settings=settings, a_s=0.0, c_s=0.0, figures=figures,
        date=date, ledger="0" * 64, cores=2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "entries", "is_replacing", "stands"),
    [
        (PROVEN, {}, [], False, True),
        (PROVEN, {}, [Entry("fit", PROVEN, "measured")], False, True),
        (PROVEN, {}, [RACE], False, False),
        (PROVEN, {}, [Entry("fit", PROVEN, "crash", reason="refused")], False, False),
        (PROVEN, {}, [], True, False),
        (PROVEN, {"streams": 2}, [], False, False),
        ({}, {}, [], False, False),
        (None, {}, [], False, False),
    ],
)
def test_what_was_proven_stands_against_a_search_that_did_not_race_it(
    tmp_path: Path,
    before: dict[str, Any] | None,
    after: dict[str, Any],
    entries: list[Entry],
    is_replacing: bool,
    stands: bool,
) -> None:
    old = None if before is None else profile(before, "2026-01-01")
    if old is not None:
        save_profile(old, tmp_path)
    new = profile(after, "2026-01-02")
    with Ledger(tmp_path / "search" / "ledger.jsonl", {}) as ledger:
        for entry in entries:
            ledger.write(entry)
        kept = keep(new, tmp_path, ledger, is_replacing=is_replacing)
    assert kept.standing == (old if stands else None)
    assert standing_profile(new, tmp_path) == (kept.file, old if stands else new)


def test_people_are_told_what_stands_and_how_to_replace_it() -> None:
    line = standing_line(profile(PROVEN, "2026-01-01"))
    assert "the profile of 2026-01-01 stands: threads=1, 1.250 times the default" in line
    assert "--replace" in line
