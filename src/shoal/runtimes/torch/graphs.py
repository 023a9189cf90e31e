"""Small batches replayed as CUDA graphs: what a forward of few tokens costs is launching its kernels one by one.

A graph has fixed sizes, so there is one for each of a few token counts. A batch is laid into the smallest that holds
it; what it leaves over is one text more, whose vector nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from shoal.runtimes.torch.copies import Tensors, upload
from shoal.runtimes.torch.layout import Ints

__all__ = ["Forward", "Graphs", "Recorder", "cuda_recorder"]

Forward = Callable[[Tensors, int], Tensors]
"""A packed part, uploaded, and the most tokens that a text in it may have, to what each head computes."""

Recorder = Callable[[Callable[[], Tensors]], Callable[[], Tensors]]
"""From a function to one that does the same to the same memory, and returns the same tensors each time."""

_LEAST_TOKENS = 16
_WARM_UPS = 2


class Graphs:
    """Recorded forwards of 16, 32, 64, ... tokens up to a limit.

    Args:
        forward: what to record.
        max_tokens: of the largest; rounded up to a power of two.
        padding_id: the token that fills what a batch leaves over.
        record: how; on CUDA `cuda_recorder`.
    """

    def __init__(
        self, forward: Forward, max_tokens: int, padding_id: int, device: torch.device, record: Recorder
    ) -> None:
        self._padding_id = padding_id
        self._device = device
        sizes = [_LEAST_TOKENS]
        while sizes[-1] < max_tokens:
            sizes.append(2 * sizes[-1])
        self._graphs = {size: self._record(forward, size, record) for size in sizes}

    def _record(self, forward: Forward, size: int, record: Recorder) -> tuple[Tensors, Callable[[], Tensors]]:
        """The memory that a graph reads, and the graph."""
        nothing = {name: np.zeros(0, np.int32) for name in _PER_TOKEN} | {
            "starts": np.zeros(1, np.int32),
            "pooled_from": np.zeros(0, np.int32),
        }
        memory = upload(self._enlarged(nothing, size), self._device)
        return memory, record(lambda: forward(memory, size))

    def run(self, arrays: dict[str, Ints]) -> Tensors | None:
        """What each head computes, rows of what was left over behind; None if no graph holds these texts."""
        num_tokens, num_texts = len(arrays["token_ids"]), len(arrays["pooled_from"])
        size = next((size for size in self._graphs if size >= num_tokens), 0)
        if not size or num_texts >= _num_texts(size) or arrays.keys() & _NOT_RECORDED:
            return None
        memory, replay = self._graphs[size]
        for name, tensor in upload(self._enlarged(arrays, size), self._device).items():
            memory[name].copy_(tensor, non_blocking=True)
        # The next replay writes over these, perhaps before they have been fetched.
        return {name: tensor.clone() for name, tensor in replay().items()}

    def _enlarged(self, arrays: dict[str, Ints], size: int) -> dict[str, Ints]:
        """The same texts, then empty ones, then one of all the tokens that are left."""
        num_tokens, num_texts = len(arrays["token_ids"]), len(arrays["pooled_from"])
        left = np.arange(size - num_tokens)
        rest = {
            "token_ids": np.full_like(left, self._padding_id),
            "positions": np.zeros_like(left),  # a graph may be longer than the model's table of positions
            "is_counted": np.ones_like(left),
        }
        enlarged = {name: np.append(arrays[name], rest.get(name, left)) for name in _PER_TOKEN}
        num_empty = _num_texts(size) - num_texts
        enlarged["starts"] = np.append(arrays["starts"], [num_tokens] * (num_empty - 1) + [size])
        # A text without tokens has no first one; any that exists will do.
        enlarged["pooled_from"] = np.append(arrays["pooled_from"], [0] * num_empty)
        return {name: array.astype(np.int32) for name, array in enlarged.items()}


_NOT_RECORDED = {"token_type_ids", "key_starts"}
_PER_TOKEN = ("token_ids", "positions", "index", "is_counted")


def _num_texts(size: int) -> int:
    """How many texts a graph of that many tokens holds, the left-over one among them."""
    return 1 + size // 4


def cuda_recorder(device: torch.device) -> Recorder:
    """Records CUDA graphs on a device."""

    def record(run: Callable[[], Tensors]) -> Callable[[], Tensors]:
        with torch.cuda.device(device):
            return _record_cuda(run, device)

    return record


def _record_cuda(run: Callable[[], Tensors], device: torch.device) -> Callable[[], Tensors]:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # Other sessions of this process go on meanwhile, in their own thread.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        computed = run()

    def replay() -> Tensors:
        with torch.cuda.device(device):
            graph.replay()
        return computed

    return replay
