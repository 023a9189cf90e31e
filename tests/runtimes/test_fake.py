"""The fake device: what it betrays, how long it takes, how it fails."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from tests.runtimes.runtime_models import features

from shoal.catalog.spec import ModelSpec, Tokenization
from shoal.errors import ModelRefused
from shoal.runtimes.base import RuntimeOptions
from shoal.runtimes.fake import (
    CRASH_ID,
    FAULT_IDS,
    FIRST_ORDINARY_ID,
    HANG_ID,
    NAN_ID,
    OUT_OF_MEMORY_ID,
    RAISE_ID,
    FakeRuntime,
    FakeSession,
    fake_vector,
)

SPEC = ModelSpec(
    id="fake",
    directory="",
    family="fake",
    config={},
    weights=(),
    tokenization=Tokenization(file="", max_length=512),
    modules=(),
    dimensions=8,
)

CHILD = """
import ast, sys
import numpy as np
from shoal.catalog.spec import ModelSpec, Tokenization
from shoal.runtimes.base import Features, RuntimeOptions
from shoal.runtimes.fake import FakeRuntime

spec = ModelSpec("fake", "", "fake", {}, (), Tokenization("", 512), (), 8)
session = FakeRuntime().load(spec, RuntimeOptions(extra=ast.literal_eval(sys.argv[1])))
print("running", flush=True)
ids = np.array([20, int(sys.argv[2])], np.int32)
session.run(Features(ids, np.array([2], np.int32), np.array([0], np.int32)))
print("returned", flush=True)
"""


def load(**extra: Any) -> FakeSession:
    return FakeRuntime().load(SPEC, RuntimeOptions(extra=extra))


def ids(*numbers: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(numbers, np.int32)


def child(extra: dict[str, Any], token_id: int) -> subprocess.Popen[bytes]:
    """A process that says "running" and then runs one item with that id."""
    process = subprocess.Popen([sys.executable, "-c", CHILD, repr(extra), str(token_id)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"running\n"
    return process


def test_a_vector_depends_on_its_own_ids_and_their_order_only() -> None:
    a, b, c = ids(11, 12), ids(12, 11), ids(11, 12, 13)
    session = load()
    alone = [session.run(features([text]))["dense"][0] for text in (a, b, c)]
    together = session.run(features([c, a, b]))["dense"]
    np.testing.assert_array_equal(together, np.stack([alone[2], alone[0], alone[1]]))
    np.testing.assert_array_equal(alone[0], fake_vector(a, 8))
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    assert len({row.tobytes() for row in together}) == 3


def test_a_run_takes_a_plus_c_times_tokens() -> None:
    session = load(a_s=0.02, c_s=0.001)
    start = time.perf_counter()
    session.run(features([np.full(30, 11, np.int32)]))
    assert time.perf_counter() - start >= 0.05


def test_loading_takes_its_time_and_claims_its_bytes() -> None:
    start = time.perf_counter()
    assert load(load_s=0.05, bytes=123).facts.bytes_in_use == 123
    assert time.perf_counter() - start >= 0.05


@pytest.mark.parametrize(("token_id", "error"), [(RAISE_ID, RuntimeError), (OUT_OF_MEMORY_ID, MemoryError)])
def test_a_reserved_id_fails_its_batch_and_not_the_next(token_id: int, error: type[Exception]) -> None:
    session = load()
    with pytest.raises(error):
        session.run(features([ids(20), ids(20, token_id)]))
    assert session.run(features([ids(20)]))["dense"].shape == (1, 8)


def test_a_nan_stays_in_its_row() -> None:
    dense = load().run(features([ids(20), ids(NAN_ID), ids(21)]))["dense"]
    assert np.isnan(dense).all(axis=1).tolist() == [False, True, False]


def test_a_batch_beyond_max_tokens_is_out_of_memory() -> None:
    session = load(max_tokens=3)
    with pytest.raises(MemoryError, match="4 tokens"):
        session.run(features([ids(20, 21), ids(22, 23)]))
    assert session.run(features([ids(20, 21, 22)]))["dense"].shape == (1, 8)


def test_a_fault_by_option_happens_in_its_run_only() -> None:
    session = load(run_fault="raise", run_fault_at=1)
    session.run(features([ids(20)]))
    with pytest.raises(RuntimeError):
        session.run(features([ids(20)]))
    session.run(features([ids(20)]))
    with pytest.raises(MemoryError):
        load(load_fault="out_of_memory")


@pytest.mark.parametrize(("extra", "token_id"), [({}, CRASH_ID), ({"run_fault": "crash"}, 20)])
def test_a_crash_kills_the_process(extra: dict[str, Any], token_id: int) -> None:
    with child(extra, token_id) as process:
        assert process.wait() == -signal.SIGKILL


def test_a_hang_never_returns() -> None:
    with child({}, HANG_ID) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        process.kill()


def test_reserved_ids_are_below_the_ordinary_ones() -> None:
    assert max(FAULT_IDS.values()) < FIRST_ORDINARY_ID
    assert len(set(FAULT_IDS.values())) == len(FAULT_IDS)


@pytest.mark.parametrize("extra", [{"speed": 1}, {"a_s": "fast"}, {"run_fault": "melt"}])
def test_an_option_that_it_does_not_know_is_refused(extra: dict[str, Any]) -> None:
    with pytest.raises(ModelRefused, match=next(iter(extra))):
        load(**extra)
