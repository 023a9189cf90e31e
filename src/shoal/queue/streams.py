"""Streams and consumers in JetStream, made by who needs them first. Knows nothing of publishing, pulling or leases."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Callable, Coroutine
from typing import Any

from shoal.errors import InternalError, Overloaded
from shoal.queue.api import FULL, NOT_FOUND, OTHER_CONFIGURATION, Api, ApiError
from shoal.queue.names import consumer_name, lane_subject, pool_subjects, stream_name
from shoal.types import Lane

__all__ = ["JetStreamOptions", "Streams", "incarnation"]

_DEDUP_WINDOW_S = 120

_CONSUMERS_AT_ONCE = 16
"""A worker with a thousand models asks for thousands of consumers when its broker is new; each has its time-out."""


@dataclasses.dataclass(frozen=True)
class JetStreamOptions:
    """What rarely needs to change.

    Attributes:
        connect_timeout_s: how long `connect` tries.
        publish_timeout_s: how long a publish may take, waiting for the connection included.
        publish_window: publishes in flight at once; more wait for one another.
        pull_expiry_s: how long the broker keeps a pull request.
        max_stream_bytes, max_stream_messages: what a pool may hold; beyond, publishes raise `Overloaded`.
        forget_consumer_s: after this time without a pull the broker forgets a consumer; its messages stay.
    """

    connect_timeout_s: float = 5.0
    publish_timeout_s: float = 5.0
    publish_window: int = 512
    pull_expiry_s: float = 30.0
    max_stream_bytes: int = 256 * 1024 * 1024
    max_stream_messages: int = 1_000_000
    forget_consumer_s: float = 3600.0


class Streams:
    """The streams and consumers that one queue needs.

    Args:
        spawn: runs a coroutine as a task that the connection's close waits for.
        lease_s: of what consumers deliver.

    Attributes:
        pools: those that a stream was asked for.
    """

    def __init__(
        self,
        api: Api,
        spawn: Callable[[Coroutine[Any, Any, str]], asyncio.Task[str]],
        lease_s: float,
        options: JetStreamOptions,
    ) -> None:
        self.pools: set[str] = set()
        self._api = api
        self._spawn = spawn
        self._lease_s = lease_s
        self._options = options
        self._making: dict[str, asyncio.Task[str]] = {}
        self._consumers_at_once = asyncio.Semaphore(_CONSUMERS_AT_ONCE)

    async def ensure(self, pool: str) -> str:
        """Make a pool's stream if it is missing; all who ask meanwhile share the answer, its incarnation."""
        task = self._making.get(pool)
        if task is None:
            task = self._making[pool] = self._spawn(self._make(pool))
            task.add_done_callback(lambda made: (self._making.pop(pool), made.cancelled() or made.exception()))
        await asyncio.wait([task])
        return task.result()

    async def _make(self, pool: str) -> str:
        self.pools.add(pool)
        name = stream_name(pool)
        options = self._options
        configuration = {
            "name": name,
            "subjects": [pool_subjects(pool)],
            "retention": "workqueue",
            "storage": "memory",
            "discard": "new",
            "max_bytes": options.max_stream_bytes,
            "max_msgs": options.max_stream_messages,
            "max_consumers": 1_000_000,  # the server takes -1 for its own limit of 1,000
            "duplicate_window": _DEDUP_WINDOW_S * 10**9,
            "num_replicas": 1,
        }
        try:
            return incarnation(await self._api.call_patiently(f"STREAM.CREATE.{name}", configuration))
        except ApiError as error:
            if error.code == OTHER_CONFIGURATION:  # another version of ours, or an operator, made it: good enough
                return incarnation(await self._api.call_patiently(f"STREAM.INFO.{name}"))
            if error.code in FULL:
                raise Overloaded(f"The broker has no room for the stream of pool {pool}: {error}.") from None
            raise InternalError(f"The broker refuses the stream of pool {pool}: {error}.") from None

    async def find(self, pool: str) -> str:
        """The incarnation of the stream that a pool has now; "" if it has none.

        Raises:
            NotReady, ApiError: the broker does not say.
        """
        try:
            return incarnation(await self._api.call(f"STREAM.INFO.{stream_name(pool)}"))
        except ApiError as error:
            if error.code in NOT_FOUND:
                return ""
            raise

    async def ensure_consumer(self, lane: Lane) -> str:
        """Make a lane's consumer if it is missing; returns where to send pull requests."""
        async with self._consumers_at_once:
            return await self._make_consumer(lane)

    async def _make_consumer(self, lane: Lane) -> str:
        stream = stream_name(lane.pool)
        subject = lane_subject(lane)
        name = consumer_name(lane, await self.ensure(lane.pool))
        configuration = {
            "durable_name": name,
            "filter_subject": subject,
            "ack_policy": "explicit",
            "ack_wait": int(self._lease_s * 1e9),
            "deliver_policy": "all",
            "replay_policy": "instant",
            "max_deliver": -1,  # the worker counts deliveries and gives up
            "max_ack_pending": -1,
            "max_waiting": 65536,
            "inactive_threshold": int(self._options.forget_consumer_s * 1e9),
            "mem_storage": True,
        }
        try:
            await self._api.call_patiently(
                f"CONSUMER.CREATE.{stream}.{name}.{subject}", {"stream_name": stream, "config": configuration}
            )
        except ApiError as error:
            raise InternalError(f"The broker refuses a consumer for {lane.model}: {error}.") from None
        return f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"


def incarnation(stream: dict[str, Any]) -> str:
    """What tells a stream from one of the same name that was lost: a word made of the time at which it was created."""
    return hashlib.sha256(stream["created"].encode()).hexdigest()[:8]
