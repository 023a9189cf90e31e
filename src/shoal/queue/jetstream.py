"""The queue over NATS JetStream: what a cluster runs on.

A pool is a WorkQueue stream in the broker's memory, a lane one of its subjects with a durable pull consumer that all
workers of the pool share (names.py says what they are called). Streams and consumers are made by whoever needs them
first. Plain messages are core NATS.

The stream is as mortal as the broker. When a lost connection is back, stream, consumers and standing pulls are made
again, and then the `on_reconnect` callbacks run, so that a gateway publishes again what is open. Messages and acks are
never kept for later while the connection is down: a reply and the ack behind it are lost together, and the message
comes again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import uuid
from collections.abc import Callable
from typing import Self

from shoal.errors import NotReady, Overloaded, ShoalError, TooLarge
from shoal.queue import names
from shoal.queue.api import FULL, NOT_FOUND, RETRY_S, Api, ApiError, error_of, status_of
from shoal.queue.base import Address
from shoal.queue.connection import Connection, ConnectionLost, Subscription
from shoal.queue.dead import Buried
from shoal.queue.jetstream_dead import DeadStream
from shoal.queue.names import address_subject, consumer_name, lane_subject, stream_name
from shoal.queue.nats_client import Message
from shoal.queue.pull import JetStreamLease, JetStreamPull
from shoal.queue.rumour import Rumours
from shoal.queue.streams import JetStreamOptions, Streams, incarnation
from shoal.settings import QueueSettings
from shoal.types import Lane

__all__ = ["JetStreamOptions", "JetStreamQueue"]

_HEADROOM_BYTES = 16 * 1024

_REQUESTS_PER_S = 5.0
"""Of all pulls that wait for messages. Each request costs some messages, its signs of life among them, so with
thousands of pulls they last longer."""

_LOOK_S = 5.0
"""How often streams are looked at: with one that was lost beside the connection, pulls need not be silent first."""

_CHECKED_AT_ONCE = 64

_log = logging.getLogger(__name__)


class JetStreamListener:
    """A `Listener`."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    async def close(self) -> None:
        await self._subscription.close()


class JetStreamQueue:
    """A `Queue` over NATS JetStream; made by `connect`."""

    def __init__(self, settings: QueueSettings, options: JetStreamOptions) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(
            settings.queue, settings.queue_token, self._connection_is_back, self._connection_is_lost, self._check_pulls
        )
        self._window = asyncio.Semaphore(options.publish_window)
        self._api = Api(self._connection, options.publish_timeout_s)
        self._streams = Streams(self._api, self._connection.spawn, settings.lease_s, options)
        self._pulls: dict[JetStreamPull, str] = {}
        self._unchecked: list[JetStreamPull] = []
        self._looks_at = self._loop.time() + _LOOK_S
        self._looking: asyncio.Task[None] | None = None
        self._restoring: asyncio.Task[None] | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._dead = DeadStream(self._api)
        self._id = uuid.uuid4().hex[:12]
        self._rumours: dict[str, Rumours] = {}
        self._listeners: dict[str, asyncio.Task[JetStreamListener]] = {}
        self._is_closed = False

    @classmethod
    async def connect(cls, settings: QueueSettings, options: JetStreamOptions | None = None) -> Self:
        """A queue at `settings.queue`, one or more NATS URLs separated by commas.

        Raises:
            NotReady: no broker answers there, or it does not let us in.
        """
        queue = cls(settings, options or JetStreamOptions())
        await queue._connection.open(queue._options.connect_timeout_s)
        return queue

    async def publish(self, lane: Lane, message_id: str, body: bytes) -> None:
        if len(body) > self.max_message_bytes:
            raise self._too_large(body)
        deadline = self._loop.time() + self._options.publish_timeout_s
        subject = lane_subject(lane)
        headers = {"Nats-Msg-Id": names.message_id(message_id)}
        self._rumours_of(lane.pool).published(subject)
        async with self._window:
            while True:
                left_s = deadline - self._loop.time()
                try:
                    if left_s <= 0:
                        raise TimeoutError
                    answer = await self._connection.ask(subject, body, left_s, headers)
                    if _is_stored(answer):
                        return
                    await self._prepare_to_retry(lane, answer)
                except ConnectionLost:
                    await self._wait_up(deadline)
                except TimeoutError:
                    raise self._api.silent() from None

    def post(self, lane: Lane, message_id: str, body: bytes, on_failure: Callable[[Exception], None]) -> None:
        def answered(answer: Message | None) -> None:
            if answer is None or not _is_stored(answer):
                self._publish_later(lane, message_id, body, on_failure)

        if len(body) > self.max_message_bytes:
            on_failure(self._too_large(body))
            return
        try:
            headers = {"Nats-Msg-Id": names.message_id(message_id)}
            subject = lane_subject(lane)
            self._connection.tell(subject, body, self._options.publish_timeout_s, headers, answered)
            self._rumours_of(lane.pool).published(subject)
        except ConnectionLost:
            self._publish_later(lane, message_id, body, on_failure)

    async def pull(
        self, lane: Lane, on_lease: Callable[[JetStreamLease], None], on_waiting: Callable[[], None] = lambda: None
    ) -> JetStreamPull:
        async def ensure_consumer() -> str:
            return await self._streams.ensure_consumer(lane)

        rumours = self._rumours_of(lane.pool)
        pull = JetStreamPull(
            self._connection,
            ensure_consumer,
            on_lease,
            on_waiting,
            rumours,
            lane_subject(lane),
            self._pull_expiry_s,
            self._options.publish_timeout_s,
        )
        if lane.pool not in self._listeners:
            hearing = self.listen(_rumour_address(lane.pool), rumours.hear)
            self._listeners[lane.pool] = self._connection.spawn(hearing)
        await asyncio.wait([self._listeners[lane.pool]])
        self._pulls[pull] = lane.pool
        await pull.attach()
        return pull

    async def purge(self, lane: Lane) -> int:
        try:
            answer = await self._api.call(f"STREAM.PURGE.{stream_name(lane.pool)}", {"filter": lane_subject(lane)})
        except ApiError as error:
            if error.code in NOT_FOUND:
                return 0
            raise
        return int(answer["purged"])

    async def depth(self, lane: Lane) -> int:
        subject = lane_subject(lane)
        stream = stream_name(lane.pool)
        try:
            info = await self._api.call(f"STREAM.INFO.{stream}", {"subjects_filter": subject})
            held = int((info["state"].get("subjects") or {}).get(subject, 0))
        except ApiError as error:
            if error.code in NOT_FOUND:
                return 0
            raise
        try:
            consumer = await self._api.call(f"CONSUMER.INFO.{stream}.{consumer_name(lane, incarnation(info))}")
        except ApiError as error:
            if error.code in NOT_FOUND:
                return held
            raise
        return int(consumer["num_pending"])

    async def bury(self, pool: str, body: bytes) -> None:
        if len(body) > self.max_message_bytes:
            raise self._too_large(body)
        await self._dead.put(pool, body)

    async def buried(self, pool: str) -> list[Buried]:
        return await self._dead.all(pool)

    async def unbury(self, pool: str, number: int | None = None) -> int:
        return await self._dead.remove(pool, number)

    def send(self, address: Address, body: bytes) -> None:
        if len(body) > self.max_message_bytes:
            raise self._too_large(body)
        try:
            self._connection.send(address_subject(address), body)
        except ConnectionLost:
            _log.debug("A message to %s is lost with the connection.", address)

    async def listen(self, address: Address, on_message: Callable[[bytes], None]) -> JetStreamListener:
        def hear(message: Message) -> None:
            on_message(message.data)

        return JetStreamListener(
            await self._connection.subscribe(address_subject(address), hear, self._options.publish_timeout_s)
        )

    @property
    def max_message_bytes(self) -> int:
        return self._connection.max_payload_bytes - _HEADROOM_BYTES

    @property
    def is_connected(self) -> bool:
        return self._connection.is_up and self._restoring is None

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._restoring is not None:
            self._restoring.cancel()
        await asyncio.gather(*(pull.close() for pull in self._pulls))
        for rumours in self._rumours.values():
            rumours.close()
        await self._connection.close()

    def _rumours_of(self, pool: str) -> Rumours:
        rumours = self._rumours.get(pool)
        if rumours is None:
            send = functools.partial(self.send, _rumour_address(pool))
            rumours = self._rumours[pool] = Rumours(send, self._id)
        return rumours

    def _publish_later(self, lane: Lane, message_id: str, body: bytes, on_failure: Callable[[Exception], None]) -> None:
        """What `post` could not do at once: try as long as `publish` does."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and isinstance(error := task.exception(), Exception):
                on_failure(error)

        self._connection.spawn(self.publish(lane, message_id, body)).add_done_callback(ended)

    async def _prepare_to_retry(self, lane: Lane, answer: Message) -> None:
        """After an answer that is no: make the stream if it is missing, or raise what the caller should know."""
        if status_of(answer) == "503":  # nobody listens there: no stream yet, or JetStream is still starting
            await self._streams.ensure(lane.pool)
            return
        error = error_of(answer.data)
        if error.code in FULL:
            raise Overloaded(f"The queue of pool {lane.pool} is full: {error}.", retry_after_s=1.0)
        _log.warning("JetStream refused a message, which is tried again: %s", error)
        await asyncio.sleep(RETRY_S)

    async def _wait_up(self, deadline: float) -> None:
        try:
            if self._is_closed:
                raise TimeoutError
            await self._connection.wait_up(max(0.0, deadline - self._loop.time()))
        except (TimeoutError, ConnectionLost):
            raise self._api.silent() from None

    def _too_large(self, body: bytes) -> TooLarge:
        return TooLarge(
            f"A message of {len(body)} bytes is beyond the queue's limit of {self.max_message_bytes} bytes."
        )

    def _connection_is_lost(self) -> None:
        if self._restoring is not None:
            self._restoring.cancel()
            self._restoring = None
        for pull in self._pulls:
            pull.detach()

    def _connection_is_back(self) -> None:
        self._restoring = self._connection.spawn(self._restore())

    async def _restore(self) -> None:
        while True:
            try:
                for pool in self._streams.pools:
                    await self._streams.ensure(pool)
                break
            except ShoalError as error:
                _log.warning("The streams cannot be made again yet: %s", error)
                await asyncio.sleep(RETRY_S)
        await asyncio.gather(*(pull.attach() for pull in self._pulls))
        self._restoring = None
        for callback in self._callbacks:
            try:
                callback()
            except Exception:
                _log.exception("A callback after the reconnection raised.")

    def _pull_expiry_s(self) -> float:
        return max(self._options.pull_expiry_s, len(self._pulls) / _REQUESTS_PER_S)

    def _check_pulls(self) -> None:
        """Check some of the pulls; all of them within some seconds."""
        if not self._unchecked:
            self._pulls = {pull: pool for pull, pool in self._pulls.items() if not pull.is_closed}
            self._unchecked = list(self._pulls)
        num_now = max(_CHECKED_AT_ONCE, len(self._pulls) // 16)
        now, self._unchecked = self._unchecked[:num_now], self._unchecked[num_now:]
        for pull in now:
            pull.check()
        if self._loop.time() >= self._looks_at and self._looking is None and self.is_connected and self._pulls:
            self._looking = self._connection.spawn(self._look_at_streams())

    async def _look_at_streams(self) -> None:
        try:
            for pool in set(self._pulls.values()):
                found = await self._streams.find(pool)
                for pull, its_pool in list(self._pulls.items()):
                    if its_pool == pool:
                        pull.check_stream(found)
        except (NotReady, ApiError) as error:
            _log.debug("The streams cannot be looked at: %s", error)
        finally:
            self._looks_at = self._loop.time() + _LOOK_S
            self._looking = None


def _rumour_address(pool: str) -> Address:
    return f"waiting.{names.token(pool)}"


def _is_stored(answer: Message) -> bool:
    """Whether a publish was acknowledged: the answer is then `{"stream":...,"seq":...}`, which nobody needs parsed."""
    return answer.data.startswith(b'{"stream"') and not answer.headers
