"""The runtime host: a child process that owns one device and its inference library. `python -m shoal.runtimes.host`.

One blocking loop over one socket: read an order, do it, report. The next batch waits in the socket's buffer while one
runs; loading and freeing is done in threads, so that a model that comes or goes does not hold up those that serve. It
imports the runtime it is asked for and nothing of gateways, queues or event loops. It ends when its parent closes the
socket or dies.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import queue
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable

import msgspec

from shoal.errors import InternalError, ShoalError
from shoal.lifeline import end_with_parent
from shoal.runtimes.base import Features, Footprint, Runtime, Session, SessionFacts
from shoal.runtimes.footprint import release_free_memory
from shoal.runtimes.registry import open_runtime
from shoal.runtimes.wire import (
    Estimate,
    Estimated,
    Failed,
    FrameReader,
    Load,
    Loaded,
    Ran,
    Run,
    Unload,
    Unloaded,
    arrays_of,
    decode_order,
    pack,
    unpack,
)

__all__ = ["Host", "main"]


class Host:
    """Serves one connection until it closes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._outbox = Outbox(connection)
        self._sessions: dict[str, Session] = {}
        self._runtimes: dict[str, Runtime] = {}
        self._load_lock = threading.Lock()

    def serve(self) -> None:
        reader = FrameReader()
        while count := self._connection.recv_into(reader.buffer):
            for frame in reader.received(count):
                self._obey(frame)

    def _obey(self, frame: memoryview) -> None:
        header, body = unpack(frame)
        match order := decode_order(header):
            case Run():
                self._outbox.send(self._run(order, body))
            case Estimate():
                self._aside(order.id, lambda: Estimated(order.id, self._estimate(order)))
            case Load():
                self._aside(order.id, lambda: Loaded(order.id, self._load(order)))
            case Unload():
                session = self._sessions.pop(order.session, None)
                self._aside(order.id, lambda: self._unload(order, session))

    def _run(self, order: Run, body: memoryview) -> bytes:
        try:
            session = self._sessions.get(order.session)
            if session is None:
                raise InternalError(f"no session {order.session!r} in this runtime host")
            features = Features(**arrays_of(order.arrays, body))
            started = time.perf_counter()
            outputs = session.run(features)
            seconds = time.perf_counter() - started
            return pack(Ran(order.id, seconds, device_tokens=_device_tokens(session, features)), outputs)
        except Exception as error:
            return pack(_failure(order.id, error))

    def _aside(self, order_id: int, work: Callable[[], msgspec.Struct]) -> None:
        """Do something in a thread of its own, and report what it returns, or that it failed."""

        def report() -> None:
            try:
                frame = pack(work())
            except Exception as error:
                frame = pack(_failure(order_id, error))
            with contextlib.suppress(OSError):  # the sidecar is gone, and so shall we be
                self._outbox.send(frame)

        threading.Thread(target=report, daemon=True).start()

    def _estimate(self, order: Estimate) -> Footprint:
        return self._runtime(order.runtime).footprint(order.spec, order.options)

    def _load(self, order: Load) -> SessionFacts:
        runtime = self._runtime(order.runtime)
        with self._load_lock:
            session = runtime.load(order.spec, order.options)
        self._sessions[order.session] = session
        return session.facts

    def _unload(self, order: Unload, session: Session | None) -> Unloaded:
        if session is not None:
            session.close()
            del session
            gc.collect()
            release_free_memory()
        return Unloaded(order.id)

    def _runtime(self, name: str) -> Runtime:
        with self._load_lock:
            if name not in self._runtimes:
                self._runtimes[name] = open_runtime(name)
            return self._runtimes[name]


class Outbox:
    """Sends reports without making the device wait for a slow reader: what the socket refuses, a thread sends."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._rest: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        self._num_pending = 0
        threading.Thread(target=self._flush, daemon=True).start()

    def send(self, report: bytes) -> None:
        """Send now what fits, the rest soon, in order. Any thread."""
        with self._lock:
            sent = 0
            if self._num_pending == 0:
                try:
                    sent = self._connection.send(report, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    sent = 0
            if sent < len(report):
                self._num_pending += 1
                self._rest.put(memoryview(report)[sent:])

    def _flush(self) -> None:
        while True:
            try:
                self._connection.sendall(self._rest.get())
            except OSError:
                return  # the sidecar is gone, and so shall we be: the main loop reads the end of the stream
            with self._lock:
                self._num_pending -= 1


def _device_tokens(session: Session, features: Features) -> int:
    """Tokens of the last run, padding included; a session that pads nothing need not say."""
    return getattr(session, "device_tokens", features.num_tokens)


def _failure(order_id: int, error: Exception) -> Failed:
    """What the sidecar is told; the traceback of a fault that nobody foresaw goes to our stderr, which it logs."""
    if isinstance(error, MemoryError):
        return Failed(order_id, InternalError(str(error) or "out of memory").to_body(), is_out_of_memory=True)
    if isinstance(error, ShoalError):
        return Failed(order_id, error.to_body())
    traceback.print_exception(error)
    return Failed(order_id, InternalError(f"the runtime failed: {type(error).__name__}: {error}").to_body())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Runtime host; started by a Shoal worker, not by hand.")
    parser.add_argument("--socket", type=int, required=True, help="inherited file descriptor of the socket")
    parser.add_argument("--parent", type=int, required=True, help="process id of the sidecar")
    options = parser.parse_args(arguments)
    faulthandler.enable()
    end_with_parent(options.parent)
    for number in (signal.SIGINT, signal.SIGTERM):  # the sidecar drains first, then closes the socket
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=options.socket) as connection:
        try:
            Host(connection).serve()
        except ConnectionError:
            return


if __name__ == "__main__":
    main()
