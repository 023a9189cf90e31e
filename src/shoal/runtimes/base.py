"""What a runtime is: a device and an inference library, behind five methods over flat arrays.

A runtime runs inside a runtime host (see `host`), one process a device; nothing here is asynchronous. It knows nothing
of requests, texts or replies: token ids go in, arrays come out, in the order of the items.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.catalog.spec import ModelSpec

__all__ = ["Arrays", "Features", "Footprint", "Runtime", "RuntimeOptions", "Session", "SessionFacts"]

Arrays = dict[str, npt.NDArray[Any]]
"""Outputs by name, those that the spec has heads for.

- `dense`: float32 [num_items, dimensions], pooled, all modules applied.
- `logits`: float32 [num_items, num_labels].
- `tags.logits`: float32 [num_tokens, num_labels], for each token of one item after another.
- `sparse.indices`: int32, `sparse.values`: float32, the weights above zero of one item after another, ascending.
- `multivector.rows`: float32 [number of kept tokens, dimensions], all modules applied, in the order of the tokens.

A name with a dot is a part of a ragged output, which has `<output>.lengths`, int32 [num_items], besides.
"""


class Features(msgspec.Struct, frozen=True):
    """A batch of texts, ragged: no padding anywhere; a runtime packs or pads as its device likes.

    Attributes:
        token_ids: int32 [total_tokens], the items one after another.
        lengths: int32 [num_items], their sum is total_tokens, each at least 1.
        pool_from: int32 [num_items], how many leading tokens pooling leaves out (a prompt); zeros as a rule.
        token_type_ids: int32 [total_tokens], or None for all zero.
        kept: bool [total_tokens], the tokens that have a row in the output multivector, or None for none.
        num_keys: int32 [num_items], how many leading tokens of each item are looked at, or None for all.
    """

    token_ids: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]
    pool_from: npt.NDArray[np.int32]
    token_type_ids: npt.NDArray[np.int32] | None = None
    kept: npt.NDArray[np.bool_] | None = None
    num_keys: npt.NDArray[np.int32] | None = None

    @property
    def num_tokens(self) -> int:
        return int(self.token_ids.shape[0])

    @property
    def num_items(self) -> int:
        return int(self.lengths.shape[0])


class RuntimeOptions(msgspec.Struct, frozen=True):
    """How a model is to be loaded; a runtime refuses what it does not know.

    Attributes:
        precision: `auto` is the fastest that the device does natively within the fidelity bound.
        num_threads: 0 = all cores of the process's affinity.
        extra: the runtime's own knobs by name (the fake's `a_s`, `c_s`, faults, ...).
    """

    precision: str = "auto"
    num_threads: int = 0
    extra: dict[str, Any] = {}


class Footprint(msgspec.Struct, frozen=True):
    """Memory that a model would take, judged by its files before any of it is loaded.

    Attributes:
        weights_bytes: the weights, in the number format that they would have on the device.
        activation_bytes: what a batch needs besides.
        device_bytes: all memory of the device; None where that is the machine's own memory.
        device, version: on what it would run: as `SessionFacts` names them.
    """

    weights_bytes: int
    activation_bytes: int = 0
    device_bytes: int | None = None
    device: str = ""
    version: str = ""


class SessionFacts(msgspec.Struct, frozen=True):
    """What loading found out: shown in model lists, metrics and replies.

    Attributes:
        bytes_in_use: memory of the weights.
        layout: how texts lie on the device, where a runtime has more ways than one: `packed` or `padded`.
    """

    runtime: str
    version: str
    device: str
    precision: str
    bytes_in_use: int
    outputs: tuple[str, ...] = ("dense",)
    layout: str = ""


class Session(Protocol):
    """A model loaded on the device."""

    @property
    def facts(self) -> SessionFacts: ...

    def run(self, features: Features) -> Arrays:
        """One batch: rows of each output in the order of the items.

        Raises:
            MemoryError: the batch did not fit; nothing is left allocated.
        """
        ...

    def close(self) -> None:
        """Free the model's memory."""
        ...


class Runtime(Protocol):
    """An inference library on one device."""

    name: str

    def footprint(self, spec: ModelSpec, options: RuntimeOptions) -> Footprint:
        """Memory that `load` would take; reads headers, no weights.

        Raises:
            ModelRefused: a file of weights is missing or unreadable.
        """
        ...

    def load(self, spec: ModelSpec, options: RuntimeOptions) -> Session:
        """Load a model.

        Raises:
            ModelRefused: the runtime cannot serve this family, module or precision faithfully; names file and key.
        """
        ...
