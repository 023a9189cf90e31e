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
import dataclasses
import hashlib
import logging
from collections.abc import Callable
from typing import Any, Self

import msgspec
from nats.aio.msg import Msg

from shoal.errors import InternalError, NotReady, Overloaded, ShoalError, TooLarge
from shoal.queue import names
from shoal.queue.base import Address
from shoal.queue.connection import Connection, ConnectionLost, Subscription
from shoal.queue.dead import Buried
from shoal.queue.jetstream_dead import DeadStream
from shoal.queue.names import address_subject, consumer_name, lane_subject, pool_subjects, stream_name
from shoal.queue.pull import JetStreamLease, JetStreamPull
from shoal.settings import QueueSettings
from shoal.types import Lane

__all__ = ["JetStreamOptions", "JetStreamQueue"]

_HEADROOM_BYTES = 16 * 1024
_DEDUP_WINDOW_S = 120
_RETRY_S = 0.05

_IS_FULL = {10023, 10028, 10047, 10077}  # no memory left, account limit, no storage left, stream limit reached
_NOT_FOUND = {10014, 10043, 10059}  # consumer, message, stream
_OTHER_CONFIGURATION = 10058

_log = logging.getLogger(__name__)


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


class _ApiError(Exception):
    """An error that JetStream answered; `code` is its err_code."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{description} ({code})")
        self.code = code


class JetStreamListener:
    """A `Listener`."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    async def close(self) -> None:
        await self._subscription.close()


class JetStreamQueue:
    """A `Queue` over NATS JetStream; made by `connect`."""

    def __init__(self, settings: QueueSettings, options: JetStreamOptions) -> None:
        self._settings = settings
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(
            settings.queue, settings.queue_token, self._connection_is_back, self._connection_is_lost, self._check_pulls
        )
        self._window = asyncio.Semaphore(options.publish_window)
        self._pools: set[str] = set()
        self._making: dict[str, asyncio.Task[str]] = {}
        self._pulls: set[JetStreamPull] = set()
        self._restoring: asyncio.Task[None] | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._dead = DeadStream(self._api_or_none, self._ask)
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
                    raise self._not_ready() from None

    def post(self, lane: Lane, message_id: str, body: bytes, on_failure: Callable[[Exception], None]) -> None:
        def answered(answer: Msg | None) -> None:
            if answer is None or not _is_stored(answer):
                self._publish_later(lane, message_id, body, on_failure)

        if len(body) > self.max_message_bytes:
            on_failure(self._too_large(body))
            return
        try:
            headers = {"Nats-Msg-Id": names.message_id(message_id)}
            self._connection.tell(lane_subject(lane), body, self._options.publish_timeout_s, headers, answered)
        except ConnectionLost:
            self._publish_later(lane, message_id, body, on_failure)

    async def pull(self, lane: Lane, on_lease: Callable[[JetStreamLease], None]) -> JetStreamPull:
        async def ensure_consumer() -> str:
            return await self._ensure_consumer(lane)

        pull = JetStreamPull(
            self._connection, ensure_consumer, on_lease, self._options.pull_expiry_s, self._options.publish_timeout_s
        )
        self._pulls.add(pull)
        await pull.attach()
        return pull

    async def purge(self, lane: Lane) -> int:
        try:
            answer = await self._api(f"STREAM.PURGE.{stream_name(lane.pool)}", {"filter": lane_subject(lane)})
        except _ApiError as error:
            if error.code in _NOT_FOUND:
                return 0
            raise
        return int(answer["purged"])

    async def depth(self, lane: Lane) -> int:
        subject = lane_subject(lane)
        stream = stream_name(lane.pool)
        try:
            info = await self._api(f"STREAM.INFO.{stream}", {"subjects_filter": subject})
            held = int((info["state"].get("subjects") or {}).get(subject, 0))
        except _ApiError as error:
            if error.code in _NOT_FOUND:
                return 0
            raise
        try:
            consumer = await self._api(f"CONSUMER.INFO.{stream}.{consumer_name(lane, _incarnation(info))}")
        except _ApiError as error:
            if error.code in _NOT_FOUND:
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
        def hear(message: Msg) -> None:
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
        await self._connection.close()

    def _publish_later(self, lane: Lane, message_id: str, body: bytes, on_failure: Callable[[Exception], None]) -> None:
        """What `post` could not do at once: try as long as `publish` does."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and isinstance(error := task.exception(), Exception):
                on_failure(error)

        self._connection.spawn(self.publish(lane, message_id, body)).add_done_callback(ended)

    async def _prepare_to_retry(self, lane: Lane, answer: Msg) -> None:
        """After an answer that is no: make the stream if it is missing, or raise what the caller should know."""
        if _status(answer) == "503":  # nobody listens there: no stream yet, or JetStream is still starting
            await self._ensure_stream(lane.pool)
            return
        error = _error_of(answer.data)
        if error.code in _IS_FULL:
            raise Overloaded(f"The queue of pool {lane.pool} is full: {error}.", retry_after_s=1.0)
        _log.warning("JetStream refused a message, which is tried again: %s", error)
        await asyncio.sleep(_RETRY_S)

    async def _wait_up(self, deadline: float) -> None:
        try:
            if self._is_closed:
                raise TimeoutError
            await self._connection.wait_up(max(0.0, deadline - self._loop.time()))
        except (TimeoutError, ConnectionLost):
            raise self._not_ready() from None

    def _not_ready(self) -> NotReady:
        if self._is_closed:
            return NotReady("The queue is closed.")
        return NotReady(
            f"The queue took no message within {self._options.publish_timeout_s:g} s.",
            hint="Check that the broker runs.",
            retry_after_s=1.0,
        )

    def _too_large(self, body: bytes) -> TooLarge:
        return TooLarge(
            f"A message of {len(body)} bytes is beyond the queue's limit of {self.max_message_bytes} bytes."
        )

    async def _ensure_stream(self, pool: str) -> str:
        """Make a pool's stream if it is missing; all who ask meanwhile share the answer, its incarnation."""
        task = self._making.get(pool)
        if task is None:
            task = self._making[pool] = self._connection.spawn(self._make_stream(pool))
            task.add_done_callback(lambda made: (self._making.pop(pool), made.cancelled() or made.exception()))
        await asyncio.wait([task])
        return task.result()

    async def _make_stream(self, pool: str) -> str:
        self._pools.add(pool)
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
            return _incarnation(await self._api_retried(f"STREAM.CREATE.{name}", configuration))
        except _ApiError as error:
            if error.code == _OTHER_CONFIGURATION:  # another version of ours, or an operator, made it: good enough
                return _incarnation(await self._api_retried(f"STREAM.INFO.{name}"))
            if error.code in _IS_FULL:
                raise Overloaded(f"The broker has no room for the stream of pool {pool}: {error}.") from None
            raise InternalError(f"The broker refuses the stream of pool {pool}: {error}.") from None

    async def _ensure_consumer(self, lane: Lane) -> str:
        """Make a lane's consumer if it is missing; returns where to send pull requests."""
        stream = stream_name(lane.pool)
        subject = lane_subject(lane)
        name = consumer_name(lane, await self._ensure_stream(lane.pool))
        configuration = {
            "durable_name": name,
            "filter_subject": subject,
            "ack_policy": "explicit",
            "ack_wait": int(self._settings.lease_s * 1e9),
            "deliver_policy": "all",
            "replay_policy": "instant",
            "max_deliver": -1,  # the worker counts deliveries and gives up
            "max_ack_pending": -1,
            "max_waiting": 65536,
            "inactive_threshold": int(self._options.forget_consumer_s * 1e9),
            "mem_storage": True,
        }
        try:
            await self._api_retried(
                f"CONSUMER.CREATE.{stream}.{name}.{subject}", {"stream_name": stream, "config": configuration}
            )
        except _ApiError as error:
            raise InternalError(f"The broker refuses a consumer for {lane.model}: {error}.") from None
        return f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"

    async def _api_retried(self, path: str, request: object = None) -> dict[str, Any]:
        """An API request, repeated while JetStream is not there yet."""
        deadline = self._loop.time() + self._options.publish_timeout_s
        while True:
            try:
                return await self._api(path, request)
            except NotReady:
                if not self._connection.is_up or self._loop.time() > deadline:
                    raise
                await asyncio.sleep(_RETRY_S)

    async def _api(self, path: str, request: object = None) -> dict[str, Any]:
        """One request to JetStream's API.

        Raises:
            NotReady: it does not answer.
            _ApiError: it answers with an error.
        """
        body = b"" if request is None else msgspec.json.encode(request)
        try:
            answer = await self._connection.ask(f"$JS.API.{path}", body, self._options.publish_timeout_s)
        except (ConnectionLost, TimeoutError):
            raise self._not_ready() from None
        if _status(answer) == "503":
            raise NotReady("The broker runs without JetStream, or it is still starting.")
        reply: dict[str, Any] = msgspec.json.decode(answer.data)
        if "error" in reply:
            raise _error_of(answer.data)
        return reply

    async def _api_or_none(self, path: str, request: object) -> dict[str, Any] | None:
        """As `_api_retried`; None if what the path names is not there."""
        try:
            return await self._api_retried(path, request)
        except _ApiError as error:
            if error.code in _NOT_FOUND:
                return None
            raise NotReady(f"The broker refuses {path}: {error}.") from None

    async def _ask(self, subject: str, body: bytes) -> Msg:
        """A request to a subject.

        Raises:
            NotReady: there is no answer.
        """
        try:
            return await self._connection.ask(subject, body, self._options.publish_timeout_s)
        except (ConnectionLost, TimeoutError):
            raise self._not_ready() from None

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
                for pool in self._pools:
                    await self._ensure_stream(pool)
                break
            except ShoalError as error:
                _log.warning("The streams cannot be made again yet: %s", error)
                await asyncio.sleep(_RETRY_S)
        await asyncio.gather(*(pull.attach() for pull in self._pulls))
        self._restoring = None
        for callback in self._callbacks:
            try:
                callback()
            except Exception:
                _log.exception("A callback after the reconnection raised.")

    def _check_pulls(self) -> None:
        self._pulls = {pull for pull in self._pulls if not pull.is_closed}
        for pull in self._pulls:
            pull.check()


class _Failure(msgspec.Struct):
    err_code: int = 0
    code: int = 0
    description: str = ""


class _Refusal(msgspec.Struct):
    error: _Failure


def _error_of(answer: bytes) -> _ApiError:
    failure = msgspec.json.decode(answer, type=_Refusal).error
    return _ApiError(failure.err_code or failure.code, failure.description)


def _status(answer: Msg) -> str:
    return answer.headers.get("Status", "") if answer.headers else ""


def _is_stored(answer: Msg) -> bool:
    """Whether a publish was acknowledged: the answer is then `{"stream":...,"seq":...}`, which nobody needs parsed."""
    return answer.data.startswith(b'{"stream"') and not answer.headers


def _incarnation(stream: dict[str, Any]) -> str:
    return hashlib.sha256(stream["created"].encode()).hexdigest()[:8]
