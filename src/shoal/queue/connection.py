"""One connection to NATS that comes back by itself, and requests over it at little cost.

nats-py does the protocol and the reconnecting. This file adds what it lacks: synchronous sends, subscriptions without a
queue and a task, requests that share one inbox and one timer, and a new client should nats-py give up. It must not know
JetStream, lanes or leases.

Nothing is buffered while the connection is down: what was meant for the old broker must not reach a new one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any, cast

from nats import errors as nats_errors

from shoal.errors import NotReady
from shoal.queue.nats_client import Message, NatsClient

__all__ = ["Connection", "ConnectionLost", "Subscription"]

_TICK_S = 0.25
_MAX_BACKOFF_S = 2.0

_ENDED = (nats_errors.Error, TimeoutError, OSError, RuntimeError)
"""What flushing to a broker that is gone raises; uvloop calls writing to its closed socket a RuntimeError."""

_log = logging.getLogger(__name__)


class ConnectionLost(Exception):
    """The connection is down, or went down before the answer came."""


class _Sink:
    """What nats-py takes for the future of a subscription: its `set_result` is called for each message, at once.

    The other two ways, callback and iterator, pass each message through an asyncio.Queue to a task of their own.
    """

    def __init__(self, on_message: Callable[[Message], None]) -> None:
        self._on_message = on_message

    def cancelled(self) -> bool:
        return False

    def set_result(self, message: Message) -> None:
        try:
            self._on_message(message)
        except Exception:  # one that escaped would end nats-py's read loop
            _log.exception("What a message on %s should do raised.", message.subject)


class _Answer:
    """What `tell` leaves in the place of a future: it calls back at once, with the answer or None for none."""

    def __init__(self, on_answer: Callable[[Message | None], None]) -> None:
        self._on_answer = on_answer

    def done(self) -> bool:
        return False

    def set_result(self, message: Message) -> None:
        self._on_answer(message)

    def set_exception(self, error: Exception) -> None:
        self._on_answer(None)


class Subscription:
    """Messages to a subject, on this client and on those that follow it."""

    def __init__(self, connection: Connection, subject: str, on_message: Callable[[Message], None]) -> None:
        self._connection = connection
        self._subject = subject
        self._sink = _Sink(on_message)
        self._inner: Any = None

    @property
    def is_attached(self) -> bool:
        return self._inner is not None

    def detach(self) -> None:
        """The client is gone for good."""
        self._inner = None

    async def attach(self, client: NatsClient) -> None:
        """Subscribe with `client`."""
        self._inner = await client.subscribe(self._subject, future=cast(Any, self._sink))

    async def close(self) -> None:
        """Unsubscribe; messages on their way still arrive before this returns. Does nothing the second time."""
        self._connection.subscriptions.discard(self)
        inner, self._inner = self._inner, None
        if inner is None:
            return
        try:
            if self._connection.is_up:
                # In a task, because a cancelled flush breaks nats-py's read loop when the PONG comes.
                await asyncio.shield(self._connection.spawn(inner.drain()))
            else:
                await inner.unsubscribe()
        except _ENDED as error:
            _log.debug("Unsubscribing from %s: %s", self._subject, error)


class Connection:
    """A connection to NATS.

    Args:
        url: server URLs, separated by commas.
        token: to log in with; "" for none.
        on_up: called when a lost connection is back.
        on_down: called when the connection is lost.
        on_tick: called about four times a second.
    """

    def __init__(
        self, url: str, token: str, on_up: Callable[[], None], on_down: Callable[[], None], on_tick: Callable[[], None]
    ) -> None:
        self._url = url
        self._where = ",".join(server.rpartition("@")[2] for server in url.split(","))  # without user and password
        self._token = token
        self._on_up, self._on_down, self._on_tick = on_up, on_down, on_tick
        self._loop = asyncio.get_running_loop()
        self._client = NatsClient()
        self._reason = ""
        self.is_up = False
        self.is_closing = False
        self._wake = asyncio.Event()  # set while the connection is up, and for good when it closes
        self._ticker: asyncio.TimerHandle | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._inbox = self._client.new_inbox() + "."
        self._counter = itertools.count()
        self._requests: dict[str, tuple[asyncio.Future[Message] | _Answer, float]] = {}
        self.subscriptions: set[Subscription] = {Subscription(self, self._inbox + "*", self._answered)}

    async def open(self, timeout_s: float) -> None:
        """Connect.

        Raises:
            NotReady: nobody answers within the time-out, or we are not let in.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._connect()
        except TimeoutError:
            await self.close()
            reason = self._reason or "no reason given"
            raise NotReady(
                f"The queue at {self._where} does not answer within {timeout_s:g} s: {reason}.",
                hint="Check the address, that the broker runs (shoal broker), and its token (SHOAL_QUEUE_TOKEN).",
            ) from None
        self._reason = ""
        self.is_up = True
        self._wake.set()
        self._tick()

    async def close(self) -> None:
        """Flush and leave."""
        self.is_closing = True
        was_up = self.is_up
        self._lose()
        self._wake.set()
        if self._ticker is not None:
            self._ticker.cancel()
        if self._reopening is not None:
            self._reopening.cancel()
        try:
            if was_up and self._client.is_connected:
                await self._client.flush(timeout=2)
            await self._client.close()
        except _ENDED as error:  # the broker is gone with what was to be flushed
            _log.debug("Closing: %s", error)
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def max_payload_bytes(self) -> int:
        """Largest message, headers included, that the server takes."""
        return self._client.max_payload

    async def wait_up(self, timeout_s: float) -> None:
        """Wait for the connection to be up.

        Raises:
            TimeoutError: it is not, within the time-out.
            ConnectionLost: it was closed for good.
        """
        async with asyncio.timeout(timeout_s):
            await self._wake.wait()
        if self.is_closing:
            raise ConnectionLost

    def send(self, subject: str, body: bytes, reply: str = "", headers: dict[str, str] | None = None) -> None:
        """Hand a message to the socket, in order, without waiting.

        Raises:
            ConnectionLost: the connection is down; the message is gone.
        """
        if not self.is_up:
            raise ConnectionLost
        try:
            self._client.send(subject, body, reply, headers)
        except (nats_errors.OutboundBufferLimitError, nats_errors.ConnectionClosedError):
            self._lose()
            raise ConnectionLost from None

    def ask(
        self, subject: str, body: bytes, timeout_s: float, headers: dict[str, str] | None = None
    ) -> asyncio.Future[Message]:
        """Send a request; the future gives the answer, and raises `ConnectionLost` or `TimeoutError`.

        Raises:
            ConnectionLost: the connection is down.
        """
        key = str(next(self._counter))
        self.send(subject, body, self._inbox + key, headers)
        future: asyncio.Future[Message] = self._loop.create_future()
        self._requests[key] = (future, self._loop.time() + timeout_s)
        return future

    def tell(
        self,
        subject: str,
        body: bytes,
        timeout_s: float,
        headers: dict[str, str],
        on_answer: Callable[[Message | None], None],
    ) -> None:
        """As `ask`, at less cost: calls back with the answer, or with None if there is none. It must not raise.

        Raises:
            ConnectionLost: the connection is down.
        """
        key = str(next(self._counter))
        self.send(subject, body, self._inbox + key, headers)
        self._requests[key] = (_Answer(on_answer), self._loop.time() + timeout_s)

    async def subscribe(self, subject: str, on_message: Callable[[Message], None], timeout_s: float) -> Subscription:
        """Hear a subject from now on, and again after the connection was lost."""
        subscription = Subscription(self, subject, on_message)
        self.subscriptions.add(subscription)
        try:
            if self.is_up:
                await subscription.attach(self._client)
                # The server handles our lines in order: when this comes back, it has seen the subscription.
                key = f"s{next(self._counter)}"
                future: asyncio.Future[Message] = self._loop.create_future()
                self._requests[key] = (future, self._loop.time() + timeout_s)
                self.send(self._inbox + key, b"")
                await future
        except (ConnectionLost, TimeoutError, nats_errors.Error) as error:
            _log.debug("Subscribing to %s waits for the connection: %s", subject, error)
        return subscription

    def new_inbox(self) -> str:
        """A subject that nobody else has."""
        return self._client.new_inbox()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` as a task that `close` waits for."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _connect(self) -> None:
        """Connect a new client, however long it takes, and put all subscriptions on it."""
        client = self._client = NatsClient()
        try:
            await client.connect(
                self._url.split(","),
                token=self._token or None,
                name="shoal",
                error_cb=self._note_error,
                disconnected_cb=self._disconnected,
                reconnected_cb=self._reconnected,
                closed_cb=self._disconnected,
                reconnect_to_server_handler=_choose_server,
                max_reconnect_attempts=-1,
                reconnect_time_wait=1,
                connect_timeout=2,
                ping_interval=5,  # a dead peer, or a dead read loop, is noticed in 15 s
                max_outstanding_pings=2,
                pending_size=0,
            )
            for subscription in self.subscriptions:
                subscription.detach()
            await self._attach_subscriptions()
        except BaseException:
            await client.close()
            raise

    async def _attach_subscriptions(self) -> None:
        """Subscribe what is not subscribed; what was, nats-py puts back itself when it reconnects."""
        while missing := [subscription for subscription in self.subscriptions if not subscription.is_attached]:
            await missing[0].attach(self._client)

    async def _note_error(self, error: Exception) -> None:
        if self._reason and isinstance(error, ConnectionResetError | nats_errors.UnexpectedEOF):
            return  # a server that does not let us in says so and hangs up: what it said tells more
        self._reason = str(error) or type(error).__name__
        _log.debug("NATS: %s", self._reason)

    async def _disconnected(self) -> None:
        self._lose()

    async def _reconnected(self) -> None:
        await self._attach_subscriptions()
        self._regain()

    def _lose(self) -> None:
        if not self.is_up:
            return
        self.is_up = False
        self._wake.clear()
        if not self.is_closing:
            _log.warning("The connection to the queue at %s is lost: %s", self._where, self._reason or "it ended")
        requests, self._requests = self._requests, {}
        for future, _ in requests.values():
            if not future.done():
                future.set_exception(ConnectionLost())
        self._on_down()

    def _regain(self) -> None:
        if self.is_closing or self.is_up:
            return
        _log.warning("The connection to the queue at %s is back.", self._where)
        self._reason = ""
        self.is_up = True
        self._wake.set()
        self._on_up()

    def _answered(self, message: Message) -> None:
        entry = self._requests.pop(message.subject[len(self._inbox) :], None)
        if entry is not None and not entry[0].done():
            entry[0].set_result(message)

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(_TICK_S, self._tick)
        now = self._loop.time()
        for key in [key for key, (_, deadline) in self._requests.items() if deadline < now]:
            future, _ = self._requests.pop(key)
            if not future.done():
                future.set_exception(TimeoutError())
        if self._client.is_closed and self._reopening is None:
            self._lose()
            self._reopening = self.spawn(self._reopen())
        self._on_tick()

    async def _reopen(self) -> None:
        """nats-py closes for good when the server answers with an error, such as a token that is no longer right."""
        reason = self._client.last_error or "no reason given"
        _log.error("The queue at %s ended the connection: %s. Connecting anew.", self._where, reason)
        try:
            await self._connect()
        finally:
            self._reopening = None
        self._regain()


def _choose_server(servers: list[Any], info: dict[str, Any]) -> tuple[Any, float]:
    """The server that failed least, after a delay that grows and is random, so that clients do not come back as one."""
    server = min(servers, key=lambda server: (server.reconnects, random.random()))  # noqa: S311
    longest_s = min(0.1 * 2 ** min(server.reconnects, 10), _MAX_BACKOFF_S)
    return server, random.uniform(longest_s / 2, longest_s)  # noqa: S311
