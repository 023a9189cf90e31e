"""What a ledger is about: a search that differs in anything that moves figures never gets the figures of another."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from shoal.bench.neighbours import Collection
from shoal.catalog import resolve
from shoal.runtimes.knobs import Knob
from shoal.settings import ModelSettings, WorkerSettings
from shoal.tuner.objectives import HighestRate, LowestLatency
from shoal.tuner.space import Space
from shoal.tuner.subject import subject_of
from shoal.tuner.task import Retrieval

WORKER = WorkerSettings(runtime="fake")
SPACE = Space((Knob("c_s", (0.1,), ""),))


def subject(**other: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "objective": HighestRate(),
        "space": SPACE,
        "texts": ["one", "two"],
        "worker": WORKER,
        "models": ModelSettings(),
        "task_digest": "",
    }
    return subject_of(resolve("fake:toy", ModelSettings()), **usual | other)


def differing(**other: Any) -> set[str]:
    one, two = subject(), subject(**other)
    return {name for name in {*one, *two} if one.get(name) != two.get(name)}


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ({}, set()),
        ({"texts": ["one two"]}, {"texts"}),
        ({"texts": ["two", "one"]}, {"texts"}),
        ({"objective": HighestRate(stretch_s=0.5)}, {"seconds"}),
        ({"objective": LowestLatency(10)}, {"objective"}),
        ({"space": Space(())}, {"knobs"}),
        ({"worker": dataclasses.replace(WORKER, threads=1, max_batch_items=7)}, {"threads", "max_batch_items"}),
        ({"worker": dataclasses.replace(WORKER, runtime_options='{"a_s":1}')}, {"runtime_options"}),
        ({"worker": dataclasses.replace(WORKER, runtime="openvino")}, {"runtime", "runtime_version"}),
        ({"worker": dataclasses.replace(WORKER, worker_port=1, profile="none", drain_s=1)}, set()),
        ({"models": ModelSettings(ignore_config_keys="key")}, {"ignore_config_keys"}),
        ({"task_digest": "d"}, {"task"}),
    ],
)  # fmt: skip
def test_what_moves_figures_makes_another_subject(other: dict[str, Any], names: set[str]) -> None:
    assert differing(**other) == names


def test_another_task_has_another_digest() -> None:
    one = Retrieval(Collection(["d", "e"], ["q"], {0: {0: 1.0}}))
    assert one.digest == Retrieval(Collection(["d", "e"], ["q"], {0: {0: 1.0}})).digest
    assert one.digest != Retrieval(Collection(["d", "e"], ["q"], {0: {1: 1.0}})).digest
    assert one.digest != Retrieval(Collection(["d", "f"], ["q"], {0: {0: 1.0}})).digest
