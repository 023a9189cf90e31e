"""The threads that tokenise large chunks; more of them as soon as a model's profile asks for more."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

__all__ = ["Tokenizers"]

P = ParamSpec("P")
T = TypeVar("T")


class Tokenizers(Executor):
    """A pool of threads that all models of a worker share.

    Attributes:
        num_threads: at most.
    """

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._pool = ThreadPoolExecutor(num_threads, "tokenize")

    def widen(self, num_threads: int) -> None:
        """Have at least so many threads; what was submitted before is still done."""
        if num_threads > self.num_threads:
            narrow, self._pool = self._pool, ThreadPoolExecutor(num_threads, "tokenize")
            self.num_threads = num_threads
            narrow.shutdown(wait=False)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See `Executor.submit`."""
        return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `Executor.shutdown`."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)
