"""What tests of the torch runtime share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from shoal.runtimes.torch.runtime import TorchRuntime


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models gain nothing from more, and threads that wait for each other starve on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def runtime() -> TorchRuntime:
    return TorchRuntime()
