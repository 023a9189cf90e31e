"""What a gateway knows of a worker that tells the whole in parts, and then what has changed."""

from __future__ import annotations

import pytest

from shoal.gateway.announced import Announced
from shoal.types import LoadedModel, ModelCard, WorkerStatus


def card(model: str) -> ModelCard:
    return ModelCard(model, ("embed",), 8, 512)


def status(*states: LoadedModel, cards: str = "", revision: int = 0, since: int = 0, **fields: object) -> WorkerStatus:
    some = tuple(card(model) for model in cards)
    return WorkerStatus("w", "default", some, states, revision=revision, since=since, **fields)  # type: ignore[arg-type]


def ready(model: str) -> LoadedModel:
    return LoadedModel(model, "ready")


def loading(model: str) -> LoadedModel:
    return LoadedModel(model, "loading")


def test_the_whole_counts_when_all_its_parts_are_there() -> None:
    worker = Announced("w")
    assert worker.hear(status(ready("a"), cards="ab", revision=7, num_parts=2), 1.0) == set()
    assert (worker.has_announced, worker.cards) == (False, {})
    assert worker.hear(status(ready("c"), cards="c", revision=7, part=1, num_parts=2), 2.0) == set("abc")
    assert worker.has_announced
    assert (list(worker.cards), sorted(worker.states)) == (["a", "b", "c"], ["a", "c"])
    assert worker.heard_at == 2.0


@pytest.mark.parametrize("heard", [[0, 2], [1, 2], [0, 1, 0, 2]])
def test_a_whole_of_which_a_part_is_missing_does_not_count(heard: list[int]) -> None:
    worker = Announced("w")
    for part in heard:
        worker.hear(status(cards="abc"[part], revision=7, part=part, num_parts=3), 1.0)
    assert not worker.has_announced
    for part in range(3):
        worker.hear(status(cards="xyz"[part], revision=9, part=part, num_parts=3), 1.0)
    assert list(worker.cards) == ["x", "y", "z"]


def test_changes_add_up() -> None:
    worker = Announced("w")
    worker.hear(status(loading("a"), loading("b"), cards="abc", revision=7), 1.0)
    assert not worker.can_serve, "it is busy loading"
    assert worker.hear(status(ready("a"), unloaded=("b",), since=7, revision=8), 2.0) == {"a", "b"}
    assert worker.can_serve
    assert worker.states == {"a": ready("a")}
    assert worker.loading_since == {}
    assert worker.hear(status(since=8, revision=8), 3.0) == set(), "a sign of life"
    assert worker.heard_at == 3.0


def test_who_missed_a_change_knows() -> None:
    worker = Announced("w")
    assert worker.hear(status(since=6, revision=7), 1.0) is None, "nothing was heard before"
    worker.hear(status(cards="a", revision=7), 1.0)
    assert worker.hear(status(ready("a"), since=8, revision=9), 2.0) is None
    assert worker.states == {}
    assert worker.hear(status(ready("a"), cards="a", revision=9), 2.0) == {"a"}


def test_what_is_known_is_no_news() -> None:
    worker = Announced("w")
    worker.hear(status(ready("a"), cards="ab", revision=7), 1.0)
    assert worker.hear(status(ready("a"), cards="ab", revision=7), 2.0) == set()
    assert worker.hear(status(ready("a"), loading("b"), cards="ab", revision=8), 3.0) == {"b"}
    assert worker.hear(status(cards="b", revision=9), 4.0) == {"a", "b"}, "a has gone, b loads no more"


def test_one_that_counts_no_revisions_always_says_the_whole() -> None:
    worker = Announced("w")
    for states in ((loading("a"),), (ready("a"),), ()):
        assert worker.hear(status(*states, cards="a"), 1.0)
        assert tuple(worker.states.values()) == states
    assert worker.can_serve, "it could load what it has not"
    worker.hear(status(LoadedModel("a", "failed"), cards="a"), 1.0)
    assert not worker.can_serve
