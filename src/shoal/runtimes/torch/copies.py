"""Copies between the host and the device, through pinned memory, beside the forwards before and after them."""

from __future__ import annotations

import numpy as np
import torch

from shoal.runtimes.torch.layout import Ints

__all__ = ["Fetches", "Tensors", "upload"]

Tensors = dict[str, torch.Tensor]


def upload(arrays: dict[str, Ints], device: torch.device) -> Tensors:
    """The arrays on the device, in one copy that does not wait."""
    sizes = [array.size for array in arrays.values()]
    staged = torch.empty(sum(sizes), dtype=torch.int32, pin_memory=device.type == "cuda")
    if sizes:
        np.concatenate(list(arrays.values()), out=staged.numpy())
    uploaded = staged.to(device, non_blocking=True)
    return dict(zip(arrays, torch.split(uploaded, sizes), strict=True))


class Fetches:
    """Copies of one batch to the host: each starts when its tensor is computed, while later forwards run."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def start(self, tensor: torch.Tensor) -> torch.Tensor:
        """Where the tensor will stand on the host, once `wait` has returned."""
        if self._stream is None:
            return tensor
        fetched = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            fetched.copy_(tensor, non_blocking=True)
        tensor.record_stream(self._stream)  # else its memory might be given away before the copy is done
        return fetched

    def wait(self) -> None:
        """Until all that was started is there."""
        if self._stream is not None:
            self._stream.synchronize()
