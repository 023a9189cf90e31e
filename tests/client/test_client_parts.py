"""The pure parts: splitting, patience, calls in order; and that what is generated and exported is right."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal.client.retry import Patience
from shoal.client.split import size_bytes, split
from shoal.client.tasks import AsyncTasks, Tasks

ROOT = Path(__file__).resolve().parents[2]


@given(st.lists(st.text(max_size=30)), st.integers(1, 9), st.integers(1, 60))
def test_split_keeps_order_and_limits(texts: list[str], max_items: int, max_bytes: int):
    runs = list(split(texts, max_items, max_bytes, size_bytes))
    assert [text for run in runs for text in run] == texts
    for run in runs:
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in run)
        assert 1 <= len(run) <= max_items
        assert size <= max_bytes or len(run) == 1
    for run, following in itertools.pairwise(runs):
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in [*run, following[0]])
        assert len(run) == max_items or size > max_bytes


def patience(timeout_s: float = 60.0, max_retries: int = 4, times: list[float] | None = None) -> Patience:
    clock = iter(times or [0.0] * 100)
    return Patience(timeout_s, max_retries, lambda: next(clock))


def test_pauses_grow_and_tries_end():
    tries, lost = patience(), shoal.NotReady("lost")
    pauses = [tries.pause_s(lost) for _ in range(4)]
    for pause, full in zip(pauses, [0.1, 0.2, 0.4, 0.8], strict=True):
        assert full / 2 <= pause <= full
    with pytest.raises(shoal.NotReady):
        tries.pause_s(lost)


def test_retry_after_is_honoured_to_the_letter_while_time_is_left():
    tries = patience(timeout_s=10, times=[0.0, 1.0, 5.0, 7.5])
    busy = shoal.Overloaded("busy", retry_after_s=3.0)
    assert [tries.pause_s(busy), tries.pause_s(busy)] == [3.0, 3.0]
    with pytest.raises(shoal.Overloaded):
        tries.pause_s(busy)


@pytest.mark.parametrize("error", [shoal.InvalidRequest("x"), shoal.InternalError("x"), shoal.DeadlineExceeded("x")])
def test_what_will_not_pass_is_not_tried_again(error: shoal.ShoalError):
    with pytest.raises(type(error)):
        patience().pause_s(error)


def in_threads(calls: list[Callable[[], object]], limit: int) -> list[object]:
    return Tasks(limit).results(calls)


def in_loop(calls: list[Callable[[], object]], limit: int) -> list[object]:
    def awaitable(call: Callable[[], object]) -> Callable[[], object]:
        return lambda: asyncio.to_thread(call)

    return asyncio.run(AsyncTasks(limit).results([awaitable(call) for call in calls]))


@pytest.mark.parametrize("run", [in_threads, in_loop])
def test_results_keep_the_order_of_the_calls(run: Callable[..., list[object]]):
    """The first call ends last."""
    last_is_done = threading.Event()
    calls = [last_is_done.wait, lambda: "second", lambda: last_is_done.set() or "third"]
    assert run(calls, 3) == [True, "second", "third"]


@pytest.mark.parametrize("run", [in_threads, in_loop])
def test_first_failure_in_order_is_raised_and_nothing_new_begun(run: Callable[..., list[object]]):
    begun = []

    def call(number: int) -> None:
        begun.append(number)
        if number in (1, 2):
            raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        run([lambda number=number: call(number) for number in range(100)], 3)
    assert max(begun) <= 3


async def test_abandoned_coroutines_are_cancelled():
    was_cancelled = asyncio.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    async def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        await AsyncTasks(2).results([fail, forever])
    assert was_cancelled.is_set()


def test_abandoned_threads_end_at_their_next_pause():
    tasks, is_over = Tasks(2), threading.Event()

    def sleeper() -> None:
        try:
            tasks.sleep(3600)
        finally:
            is_over.set()

    with pytest.raises(ValueError, match="no"):
        tasks.results([lambda: int("no"), sleeper])
    assert is_over.wait(10)


def test_synchronous_client_is_fresh():
    subprocess.run([sys.executable, ROOT / "scripts/unasync", "--check"], check=True)


def test_stale_synchronous_client_is_found(tmp_path: Path):
    for name in ("scripts/unasync", "src/shoal/client/_async.py", "src/shoal/client/_sync.py", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    with (tmp_path / "src/shoal/client/_sync.py").open("a") as generated:
        generated.write("# changed by hand\n")
    check = subprocess.run(
        [sys.executable, tmp_path / "scripts/unasync", "--check"], check=False, capture_output=True, text=True
    )
    assert check.returncode == 1
    assert "_sync.py is stale" in check.stderr


def test_public_names():
    assert sorted(shoal.__all__) == [
        "AsyncClient",
        "Client",
        "ContextLengthExceeded",
        "DeadlineExceeded",
        "EmbedResult",
        "ExtractResult",
        "Forbidden",
        "Health",
        "InternalError",
        "InvalidRequest",
        "MethodNotAllowed",
        "ModelRefused",
        "MultiVectorResult",
        "NotReady",
        "Overloaded",
        "QuotaExceeded",
        "RerankResult",
        "ServedModel",
        "ShoalError",
        "SimilarityResult",
        "SparseResult",
        "TokenizeResult",
        "TooLarge",
        "Unauthorized",
        "UnknownModel",
        "UnknownRoute",
        "UnsupportedMediaType",
        "UnsupportedOperation",
        "__version__",
    ]
    for name in shoal.__all__:
        assert getattr(shoal, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'client2'"):
        shoal.client2  # noqa: B018


def test_import_is_light():
    """Neither HTTP nor NumPy nor msgspec is loaded before it is needed."""
    script = (
        "import shoal, sys; print([name for name in ('httpx', 'numpy', 'msgspec', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
