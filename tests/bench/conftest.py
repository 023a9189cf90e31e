"""One real server on the fake device for all tests of the bench, and a raw one that answers as it is told."""

from __future__ import annotations

import contextlib
import itertools
import socketserver
import threading
from collections.abc import Iterator

import pytest

from e2e.running import serving


@pytest.fixture(scope="session")
def fake_url() -> Iterator[str]:
    """Base URL of `shoal serve` with two models on a fake device."""
    with serving("fake:device", "fake:other", "--runtime", "fake") as (_, url):
        yield url


@contextlib.contextmanager
def answering(answer: bytes, after_s: float = 0.0, num_requests: int | None = None) -> Iterator[str]:
    """A server that gives every request the same raw answer, however many come at once; its base URL.

    Args:
        num_requests: so many are answered; on each that comes then it hangs up. None = all are.
    """
    stopping = threading.Event()
    left = itertools.repeat(0) if num_requests is None else iter(range(num_requests))

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):
                while self.rfile.readline():
                    head = list(iter(self.rfile.readline, b"\r\n"))
                    length = next(line for line in head if line.lower().startswith(b"content-length:"))
                    self.rfile.read(int(length.partition(b":")[2]))
                    if next(left, None) is None:
                        return
                    stopping.wait(after_s)
                    self.wfile.write(answer)
                    if b"connection: close" in answer:
                        return

    class Server(socketserver.ThreadingTCPServer):
        request_queue_size = 128
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            stopping.set()
            server.shutdown()
            thread.join(10)


def response(body: bytes = b"[]", status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status.encode(), len(body), body)
