"""Loads that failed: which are worth trying again, and when. Knows no runtime host and does not load."""

from __future__ import annotations

from collections.abc import Callable

from shoal.errors import InternalError, NotReady, ShoalError
from shoal.runtimes.link import HostExited
from shoal.types import LoadedModel

__all__ = ["Failures", "shown"]

PERMANENT_S = 300.0
"""A model that was refused is looked at again after this: its files may have been put right."""

FIRST_TRANSIENT_S, LAST_TRANSIENT_S = 5.0, 300.0
"""Want of memory, a host that died, a fault of ours: pauses that double."""


class Failures:
    """Failed loads of late, by model.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, tuple[float, LoadedModel]] = {}
        self._num_tries: dict[str, int] = {}

    def __contains__(self, model_id: str) -> bool:
        return model_id in self._until

    @property
    def states(self) -> list[LoadedModel]:
        """What is announced."""
        return [state for _, state in self._until.values()]

    def note(self, model_id: str, error: Exception) -> tuple[ShoalError, float]:
        """A load failed; returns what is said of it, and for how many seconds it is not tried again."""
        number = self._num_tries[model_id] = self._num_tries.get(model_id, 0) + 1
        pause_s = min(FIRST_TRANSIENT_S * 2 ** (number - 1), LAST_TRANSIENT_S)
        if isinstance(error, ShoalError) and not error.is_retryable and not isinstance(error, InternalError):
            pause_s = PERMANENT_S
        said = shown(model_id, error, pause_s)
        self._until[model_id] = (self._clock() + pause_s, LoadedModel(model_id, "failed", error=said.to_body()))
        return said, pause_s

    def forgive(self) -> bool:
        """Forget those whose pause is over; returns whether there were any."""
        now = self._clock()
        over = [model_id for model_id, (until, _) in self._until.items() if until <= now]
        for model_id in over:
            del self._until[model_id]
        return bool(over)

    def forget(self, model_id: str) -> None:
        """The model has loaded."""
        self._num_tries.pop(model_id, None)


def shown(model_id: str, error: Exception, pause_s: float) -> ShoalError:
    """The error that callers get of a load that failed with `error`."""
    match error:
        case ShoalError():
            return error
        case MemoryError():
            text = f"{model_id} does not fit into memory now: {error}"
            return NotReady(text, retry_after_s=pause_s)
        case HostExited():
            return NotReady(f"{model_id} does not load: the runtime host died over it", retry_after_s=pause_s)
        case _:
            return InternalError(f"{model_id} does not load: {type(error).__name__}: {error}")
