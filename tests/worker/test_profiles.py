"""Profiles: which one is taken, what of it is applied, and what is said about it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.catalog import profiles
from shoal.catalog.profiles import Figures, Profile, nearest, profiles_directory, save_profile
from shoal.settings import WorkerSettings
from shoal.tuner.ledger import digest_of
from shoal.worker.tokenizers import Tokenizers
from worker.station import SPEC

ROOT = Path(__file__).parents[2]
FIGURES = Figures(objective="o", unit="1/s", predicted=1.0, verified=1.0, default=1.0)


def profile(**changes: Any) -> Profile:
    whole: dict[str, Any] = {
        "model": SPEC.id,
        "runtime": "fake",
        "version": "1",
        "device": "fake",
        "settings": {"c_s": 1e-3, "a_s": 0.0, "latency_objective_ms": 100.0, "tokenizer_threads": 3},
        "a_s": 0.0,
        "c_s": 1e-3,
        "figures": FIGURES,
        "date": "2026-01-01",
        "ledger": "0" * 64,
    }
    return Profile(**(whole | changes))


KEY = {"model": SPEC.id, "revision": "", "runtime": "fake", "version": "1", "device": "fake", "cores": 2}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOAL_STATE", str(tmp_path))
    return tmp_path


def test_the_nearest_is_taken_and_what_differs_is_said() -> None:
    exact, newer, elsewhere = (
        profile(),
        profile(version="2"),
        profile(device="other", settings={"precision": "bfloat16"}),
    )
    found = nearest([elsewhere, newer, exact], **KEY)
    assert found is not None
    assert (found.profile, found.note) == (exact, "")
    found = nearest([elsewhere, newer], **KEY)
    assert found is not None
    assert (found.profile, found.note) == (newer, "made for version 2")
    found = nearest([elsewhere], **KEY)
    assert found is not None
    assert found.note == "made for device other"
    assert found.settings == {}, "a number format is not taken over to another device"
    found = nearest([profile(cores=8, settings={"threads": 7, "layout": "padded"})], **KEY)
    assert found is not None
    assert (found.note, found.settings) == ("made for cores 8", {"layout": "padded"})
    assert nearest([profile(model="another"), profile(runtime="torch")], **KEY) is None


def test_a_profile_is_saved_and_found_and_a_broken_one_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    path = save_profile(profile(), profiles_directory())
    path.with_name("broken.json").write_text('{"model": 1}')
    found = profiles.find_profile(**KEY)
    assert found is not None
    assert found.profile == profile()
    assert "broken.json is no profile" in caplog.text


def test_shipped_profiles_have_their_ledgers() -> None:
    ledgers = {digest_of(path) for path in (ROOT / "benchmarks" / "results" / "tuning").glob("*.jsonl")}
    for shipped in profiles._shipped():
        assert shipped.figures.p1_cosine >= 0.99
        assert shipped.ledger in ledgers
        assert shipped.cores > 0


async def test_a_profile_is_applied_and_named(station: Any) -> None:
    save_profile(profile(), profiles_directory())
    one = await station(SPEC)
    reply = await one.ask(["hello"])
    state = one.statuses[-1].models[0]
    assert reply.profile == state.profile == "fake:demo@2026-01-01.00000000"
    assert state.c_s == pytest.approx(1e-3, rel=0.3), "the fake device was not given the profile's c_s"
    assert one.worker.num_tokenizers == 3


async def test_what_the_operator_sets_stays(station: Any) -> None:
    save_profile(profile(), profiles_directory())
    one = await station(SPEC, fake={"c_s": 5e-3})
    await one.ask(["hello"])
    assert one.statuses[-1].models[0].c_s == pytest.approx(5e-3, rel=0.3)


def test_threads_that_tokenise_become_more_and_lose_nothing() -> None:
    threads, gate = Tokenizers(1), threading.Event()
    first = threads.submit(gate.wait)
    waiting = threads.submit(int, "1")
    threads.widen(2)
    assert [threads.submit(int, "2").result(30), threads.num_threads] == [2, 2]
    threads.widen(1)
    assert threads.num_threads == 2
    gate.set()
    assert first.result(30)
    assert waiting.result(30) == 1
    threads.shutdown()


async def test_profiles_can_be_left_alone(station: Any) -> None:
    save_profile(profile(), profiles_directory())
    one = await station(SPEC, profile="none")
    assert (await one.ask(["hello"])).profile == ""


async def test_a_machine_that_changed_is_flagged(station: Any, caplog: pytest.LogCaptureFixture) -> None:
    save_profile(profile(c_s=1e-4), profiles_directory())
    with caplog.at_level(logging.WARNING):
        one = await station(SPEC)
        await one.ask(["hello"])
    assert one.statuses[-1].models[0].drift > 5
    assert "run `shoal tune` again" in caplog.text


def test_the_settings_file_has_the_key() -> None:
    assert WorkerSettings().profile == "auto"
    assert msgspec.json.decode(msgspec.json.encode(profile()), type=Profile) == profile()
