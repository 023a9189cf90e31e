"""Where chunks wait between gateway and workers: `open_queue` gives the implementation that the settings name."""

from __future__ import annotations

from shoal.queue.base import Queue
from shoal.queue.jetstream import JetStreamQueue
from shoal.queue.memory import MemoryQueue
from shoal.settings import QueueSettings

__all__ = ["open_queue"]


async def open_queue(settings: QueueSettings) -> Queue:
    """The queue at `settings.queue`, connected; in memory if that is empty.

    Raises:
        NotReady: no broker answers there.
    """
    if settings.queue:
        return await JetStreamQueue.connect(settings)
    return MemoryQueue(lease_s=settings.lease_s)
