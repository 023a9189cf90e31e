"""A device that is not there: deterministic outputs, a real duration, faults on demand. It makes a fleet on a laptop.

What it says of an item is a function of the item's token ids alone (`fake_vector`, `fake_logit`, ...), so an
answer that belongs to another item, or to another order of tokens, is found out. A run takes a_s + c_s * tokens of real
time, asleep, as a device would.

Options (`RuntimeOptions.extra`):
    a_s, c_s         seconds a batch and seconds a token; 0.
    load_s           seconds that loading takes; 0.
    bytes            what `facts.bytes_in_use` says; 0.
    estimated_bytes  what `footprint` says; as `bytes`.
    max_tokens       a larger batch raises MemoryError; 0 = no bound.
    load_fault       a fault (below) instead of a session.
    fault_model      id of the one model that `load_fault` and `run_fault` are for; all.
    run_fault        a fault in the run number `run_fault_at` (from 0; 0) of the session.

Faults, by name in an option, or by a reserved token id anywhere in a batch:
    crash            1   the process kills itself with SIGKILL
    raise            2   RuntimeError
    hang             3   never returns
    out_of_memory    4   MemoryError
    nan              5   the item's row is NaN; as an option, every row
Ids below FIRST_ORDINARY_ID are reserved; an adapter that makes ids of texts starts there.
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.catalog.spec import ModelSpec
from shoal.errors import ModelRefused
from shoal.runtimes.base import Arrays, Features, Footprint, RuntimeOptions, SessionFacts

__all__ = [
    "CRASH_ID",
    "FAULT_IDS",
    "FIRST_ORDINARY_ID",
    "HANG_ID",
    "NAN_ID",
    "OUT_OF_MEMORY_ID",
    "RAISE_ID",
    "FakeRuntime",
    "fake_logit",
    "fake_sparse",
    "fake_tags",
    "fake_vector",
]

CRASH_ID, RAISE_ID, HANG_ID, OUT_OF_MEMORY_ID, NAN_ID = 1, 2, 3, 4, 5
FIRST_ORDINARY_ID = 10
FAULT_IDS = {
    "crash": CRASH_ID,
    "raise": RAISE_ID,
    "hang": HANG_ID,
    "out_of_memory": OUT_OF_MEMORY_ID,
    "nan": NAN_ID,
}
"""Fault to the reserved token id that causes it."""

_DEFAULTS: dict[str, Any] = {
    "a_s": 0.0,
    "c_s": 0.0,
    "load_s": 0.0,
    "bytes": 0,
    "estimated_bytes": -1,
    "max_tokens": 0,
    "fault_model": "",
    "load_fault": "",
    "run_fault": "",
    "run_fault_at": 0,
}


def fake_vector(token_ids: npt.NDArray[np.int32], dimensions: int) -> npt.NDArray[np.float32]:
    """The vector of an item: float32 [dimensions], length 1, from a hash of its ids in their order."""
    digest = hashlib.shake_256(np.ascontiguousarray(token_ids, "<i4").tobytes()).digest(4 * dimensions)
    numbers = np.frombuffer(digest, "<i4").astype(np.float64) + 0.5
    return (numbers / np.linalg.norm(numbers)).astype(np.float32)


def fake_logit(token_ids: npt.NDArray[np.int32]) -> np.float32:
    """The logit of an item: a hash of its ids in their order, between -8 and 8."""
    digest = hashlib.shake_256(b"logit" + np.ascontiguousarray(token_ids, "<i4").tobytes()).digest(4)
    return np.float32(int.from_bytes(digest, "little") / 2**28 - 8)


def fake_sparse(token_ids: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """The sparse vector of an item: each id once, ascending, and how often it occurs."""
    indices, counts = np.unique(token_ids, return_counts=True)
    return indices.astype(np.int32), counts.astype(np.float32)


def fake_tags(token_ids: npt.NDArray[np.int32], num_labels: int) -> npt.NDArray[np.float32]:
    """Logits of an item's tokens: float32 [num_tokens, num_labels], 8 for the label of an id, else 0."""
    is_label = token_ids[:, None] % num_labels == np.arange(num_labels)
    return np.where(is_label, np.float32(8), np.float32(0))


class FakeRuntime:
    """See the file's docstring."""

    name = "fake"

    def footprint(self, spec: ModelSpec, options: RuntimeOptions) -> Footprint:
        """See `base.Runtime.footprint`."""
        knobs = _knobs(options.extra)
        estimate = int(knobs["bytes"] if knobs["estimated_bytes"] < 0 else knobs["estimated_bytes"])
        return Footprint(estimate, device="fake", version="1")

    def load(self, spec: ModelSpec, options: RuntimeOptions) -> FakeSession:
        """See `base.Runtime.load`; a bfloat16 device it is not."""
        knobs = _knobs(options.extra)
        if knobs["fault_model"] not in ("", spec.id):
            knobs |= {"load_fault": "", "run_fault": ""}
        if options.precision not in ("auto", "float32"):
            raise ModelRefused(f"precision is {options.precision!r}; the fake runtime computes in float32.")
        time.sleep(knobs["load_s"])
        _happen(knobs["load_fault"])
        return FakeSession(spec, knobs)


class FakeSession:
    """A model on the fake device."""

    def __init__(self, spec: ModelSpec, knobs: dict[str, Any]) -> None:
        self._spec = spec
        self._knobs = knobs
        self._num_runs = 0

    @property
    def facts(self) -> SessionFacts:
        outputs = ("dense", "sparse", "logits", *(("tags",) if self._spec.tagger else ()))
        return SessionFacts("fake", "1", "fake", "float32", int(self._knobs["bytes"]), outputs)

    def run(self, features: Features) -> Arrays:
        """See `base.Session.run`."""
        knobs, number = self._knobs, self._num_runs
        self._num_runs += 1
        fault = knobs["run_fault"] if number == knobs["run_fault_at"] else ""
        for name in _asked_for(features.token_ids):
            _happen(name)
        _happen(fault)
        if 0 < knobs["max_tokens"] < features.num_tokens:
            raise MemoryError(f"{features.num_tokens} tokens do not fit; max_tokens is {knobs['max_tokens']}")
        time.sleep(knobs["a_s"] + knobs["c_s"] * features.num_tokens)
        texts = np.split(features.token_ids, np.cumsum(features.lengths)[:-1])
        is_nan = np.array([fault == "nan" or NAN_ID in token_ids for token_ids in texts])
        sparse = [fake_sparse(token_ids) for token_ids in texts]
        outputs = {
            "dense": np.stack([fake_vector(token_ids, self._spec.dimensions) for token_ids in texts]),
            "logits": np.array([[fake_logit(token_ids)] for token_ids in texts], np.float32),
            "sparse.lengths": np.array([len(indices) for indices, _ in sparse], np.int32),
            "sparse.indices": np.concatenate([indices for indices, _ in sparse]),
            "sparse.values": np.concatenate([values for _, values in sparse]),
        }
        if self._spec.tagger is not None:
            outputs["tags.lengths"] = features.lengths
            outputs["tags.logits"] = fake_tags(features.token_ids, len(self._spec.tagger.labels))
        outputs["dense"][is_nan] = outputs["logits"][is_nan] = np.nan
        return outputs

    def close(self) -> None:
        """Nothing to free."""


def _knobs(extra: dict[str, Any]) -> dict[str, Any]:
    for name, value in extra.items():
        if name not in _DEFAULTS:
            raise ModelRefused(
                f"The fake runtime has no option {name!r}.", hint=f"Options: {', '.join(sorted(_DEFAULTS))}."
            )
        kind: type[Any] | tuple[type[Any], ...] = str if isinstance(_DEFAULTS[name], str) else (int, float)
        is_fault = name in ("load_fault", "run_fault")
        if not isinstance(value, kind) or (is_fault and value and value not in FAULT_IDS):
            allowed = ", ".join(FAULT_IDS) if is_fault else "a number"
            raise ModelRefused(f"Option {name} of the fake runtime is {value!r}; allowed: {allowed}.")
    return _DEFAULTS | extra


def _asked_for(token_ids: npt.NDArray[np.int32]) -> list[str]:
    reserved = set(token_ids[token_ids < FIRST_ORDINARY_ID].tolist())
    return [name for name, fault_id in FAULT_IDS.items() if fault_id in reserved]


def _happen(fault: str) -> None:
    if fault in _FAULTS:
        _FAULTS[fault]()


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raise() -> None:
    raise RuntimeError("a fault was asked for")


def _hang() -> None:
    threading.Event().wait()


def _run_out_of_memory() -> None:
    raise MemoryError("out of memory was asked for")


_FAULTS: dict[str, Callable[[], None]] = {
    "crash": _crash,
    "raise": _raise,
    "hang": _hang,
    "out_of_memory": _run_out_of_memory,
}
