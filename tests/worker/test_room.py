"""The budget: what is chosen is held to, what is guessed stops nobody who would have the memory alone."""

import asyncio
from pathlib import Path

import pytest

from shoal.errors import ModelRefused
from shoal.worker import memory
from shoal.worker.budget import Resident
from shoal.worker.room import NoRoom, Room


def room_of(*residents: Resident, is_strict: bool) -> Room:
    left = {one.id: one for one in residents}

    async def evict(model: str) -> None:
        del left[model]
        room.free(model)

    pinned_bytes = sum(one.num_bytes for one in residents if one.is_pinned)
    room = Room(100, is_strict, lambda: list(left.values()), lambda: pinned_bytes, evict)
    room.held = {one.id: one.num_bytes for one in residents}
    return room


def resident(id: str, num_bytes: int, *, is_pinned: bool = False) -> Resident:
    return Resident(id, num_bytes, ready_at=-1e9, used_at=-1e9, load_s=0.0, is_pinned=is_pinned)


async def test_a_guessed_budget_lets_a_larger_model_have_it_all() -> None:
    room = room_of(resident("a", 60), is_strict=False)
    assert room.may_ever_hold(150)
    await room.take("large", 150)
    assert room.held == {"large": 100}


@pytest.mark.parametrize("is_strict", [True, False])
async def test_beside_pinned_models_every_budget_is_held_to(is_strict: bool) -> None:
    room = room_of(resident("pinned", 60, is_pinned=True), is_strict=is_strict)
    assert not room.may_ever_hold(50)
    with pytest.raises(ModelRefused, match="takes about 0 MiB"):
        await room.take("b", 50)
    await room.take("c", 40)
    assert room.used_bytes == 100


async def test_who_may_not_evict_gets_no_room_and_evicts_nobody() -> None:
    room = room_of(resident("a", 60), is_strict=True)
    with pytest.raises(NoRoom):
        await room.take("b", 50, may_evict=False)
    assert room.held == {"a": 60}


async def test_who_waits_gets_what_is_given_back() -> None:
    room = room_of(is_strict=True)
    room.held = {"loading": 80}
    taking = asyncio.create_task(room.take("b", 50))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(taking), 0.05)
    room.free("loading")
    await taking
    assert room.held == {"b": 50}


def test_a_control_group_counts_but_for_its_file_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CONTROL_GROUP", tmp_path)
    everything = memory.free_bytes()
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("900000\n")
    assert memory.free_bytes() == 100_000
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 300000\nactive_file 7\n")
    assert memory.free_bytes() == 400_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_bytes() == pytest.approx(everything, rel=0.3)
    assert memory.budget_bytes("", device_bytes=1000) == 900
    assert memory.budget_bytes("2kB", device_bytes=1000) == 2000
