"""vLLM is not measured: its wheel on PyPI is built for CUDA, and does not run without."""

from __future__ import annotations

__all__ = ["ABSENT"]

ABSENT = {
    "vllm": "Its wheel on PyPI (0.33.0) is built for CUDA: the compiled kernels need libcudart.so.13 and libcuda.so.1, "
    "and there are none for CPU in it. Wheels for CPU are not on PyPI.",
}
"""Why peers that one would expect are not measured."""
