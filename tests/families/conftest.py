"""What tests of families share: one thread, as tiny models gain nothing from more, which starve on a busy machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from shoal.runtimes.base import RuntimeOptions

ONE_THREAD = RuntimeOptions(precision="float32", num_threads=1)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
