"""A loaded model: packs a ragged batch into rows, infers, and has the outputs put back in the order of the items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.catalog.spec import Sparse, TokenWeights
from shoal.errors import InvalidRequest
from shoal.runtimes.base import Arrays, Features, SessionFacts
from shoal.runtimes.openvino.options import Choices
from shoal.runtimes.openvino.outputs import Collector, collectors
from shoal.runtimes.openvino.packing import Rows, num_slots, plan_rows

__all__ = ["OpenVINOSession"]

Ints = npt.NDArray[np.int32]

_RUN_LOGITS = 1 << 24
"""Numbers that the vocabulary's logits of a run may be, but for a single row that has more: 64 MiB."""

_WIDTH_COST = {"float32": 1 / 1400, "bfloat16": 1 / 700, "int8_weights": 1 / 1400, "int8": 1 / 1400}
"""See `packing.plan_rows`; where matrix multiplications are cheap, attention weighs more."""


class OpenVINOSession:
    """A compiled graph on the CPU.

    Args:
        compiled: the openvino compiled model.
        input_names: what the graph wants, of those that `fill` makes.
        padding_id: what positions skip, see `inputs.Inputs.positions`.
        max_length: tokens that a text may have.
        vocabulary_size: ids are below it.
        sparse: how the graph's output becomes sparse vectors, if it has such.
        facts: for those who ask; its outputs are those of the graph.
        choices: layout, size of runs, how many at once.
    """

    def __init__(
        self,
        compiled: Any,
        input_names: tuple[str, ...],
        padding_id: int | None,
        max_length: int,
        vocabulary_size: int,
        sparse: Sparse | TokenWeights | None,
        facts: SessionFacts,
        choices: Choices,
    ) -> None:
        self._requests = [compiled.create_infer_request() for _ in range(choices.streams)]
        num_threads = compiled.get_property("INFERENCE_NUM_THREADS")
        self._run_tokens = choices.run_tokens * max(1, num_threads // choices.streams)
        self._is_packed = choices.layout == "packed"
        self._width_cost = _WIDTH_COST[facts.precision]
        self._input_names = input_names
        self._padding_id = padding_id
        self._max_length = max_length
        self._vocabulary_size = vocabulary_size
        self._sparse = sparse
        if isinstance(sparse, Sparse):
            self._run_tokens = min(self._run_tokens, _RUN_LOGITS // vocabulary_size)
        self._facts = facts
        self.device_tokens = 0
        """Of the last run, padding included."""

    @property
    def facts(self) -> SessionFacts:
        return self._facts

    def run(self, features: Features) -> Arrays:
        """See `base.Session.run`.

        Raises:
            InvalidRequest: a text is longer than the model's positions, or an id is outside its vocabulary.
        """
        self._check(features)
        takers = collectors(self._facts.outputs, features, self._sparse)
        plan = plan_rows(features.lengths.tolist(), self._run_tokens, self._width_cost, is_packed=self._is_packed)
        self.device_tokens = sum(rows.num_rows * rows.width for rows in plan)
        running: deque[tuple[Any, Rows]] = deque()
        for number, rows in enumerate(plan):
            if len(running) == len(self._requests):
                self._take(takers, *running.popleft(), features)
            request = self._requests[number % len(self._requests)]
            arrays = fill(features, rows, self._input_names, self._padding_id)
            if len(plan) == 1:
                request.infer(arrays, share_inputs=True, share_outputs=True)  # a lone text is spared another thread
            else:
                request.start_async(arrays, share_inputs=True)
            running.append((request, rows))
        for request, rows in running:
            self._take(takers, request, rows, features)
        return {name: array for taker in takers.values() for name, array in taker.arrays().items()}

    def _take(self, takers: dict[str, Collector], request: Any, rows: Rows, features: Features) -> None:
        request.wait()
        for name, taker in takers.items():
            taker.take(request.get_tensor(name).data, rows, features.lengths)

    def close(self) -> None:
        """Free the model's memory."""
        del self._requests

    def _check(self, features: Features) -> None:
        if not features.num_items:
            return
        longest, lowest, highest = (
            int(features.lengths.max()),
            int(features.token_ids.min()),
            int(features.token_ids.max()),
        )
        if longest > self._max_length:
            raise InvalidRequest(f"A text has {longest} tokens; the model takes {self._max_length}.")
        if lowest < 0 or highest >= self._vocabulary_size:
            wrong = lowest if lowest < 0 else highest
            raise InvalidRequest(f"Token id {wrong} is outside the vocabulary of {self._vocabulary_size}.")


def fill(features: Features, rows: Rows, names: tuple[str, ...], padding_id: int | None) -> dict[str, Ints]:
    """The inputs `names` (see `inputs.Inputs`) for these rows, int32; `padding_id` is what positions skip."""
    lengths = features.lengths[rows.items].astype(np.int64)
    firsts = np.cumsum(features.lengths, dtype=np.int64)[rows.items] - lengths
    index = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    source = np.repeat(firsts, lengths) + index
    target = np.repeat(rows.rows * rows.width + rows.starts, lengths) + index
    segments = np.repeat(rows.slots, lengths)

    def spread(values: npt.ArrayLike, padding: int = 0) -> Ints:
        flat = np.full(rows.num_rows * rows.width, padding, np.int32)
        flat[target] = values
        return flat.reshape(rows.num_rows, rows.width)

    def pooled_segments() -> Ints:
        is_pooled = index >= np.repeat(features.pool_from[rows.items], lengths)
        return spread(np.where(is_pooled, segments, -1), -1)

    def key_segments() -> Ints:
        if features.num_keys is None:
            return spread(segments, -1)
        is_key = index < np.repeat(features.num_keys[rows.items], lengths)
        return spread(np.where(is_key, segments, -2), -1)

    def positions() -> Ints:
        return spread(index if padding_id is None else _counted(features.token_ids[source], lengths, padding_id))

    def first_places() -> Ints:
        # As many columns as the fullest row wants, rounded up to a power of two: few shapes.
        table = np.zeros((rows.num_rows, 1 << int(rows.slots.max()).bit_length()), np.int32)
        table[rows.rows, rows.slots] = rows.starts
        return table

    makers: dict[str, Callable[[], Ints]] = {
        "token_ids": lambda: spread(features.token_ids[source]),
        "token_type_ids": lambda: spread(0 if features.token_type_ids is None else features.token_type_ids[source]),
        "segments": lambda: spread(segments, -1),
        "pooled_segments": pooled_segments,
        "key_segments": key_segments,
        "firsts": first_places,
        "index": lambda: spread(index),
        "positions": positions,
        "slots": lambda: np.arange(num_slots(rows.width), dtype=np.int32),
    }
    return {name: makers[name]() for name in names}


def _counted(token_ids: Ints, lengths: npt.NDArray[np.int64], padding_id: int) -> npt.NDArray[np.int64]:
    """fairseq's positions: tokens of a text counted from padding_id + 1, literal padding not counted, at padding_id."""
    counts = token_ids != padding_id
    running = np.cumsum(counts)
    firsts = np.cumsum(lengths) - lengths
    before = np.repeat(running[firsts] - counts[firsts], lengths)
    positions: npt.NDArray[np.int64] = (running - before) * counts + padding_id
    return positions
