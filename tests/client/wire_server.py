"""A small server that speaks the real wire over a real socket and misbehaves on demand. No model behind it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import threading
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shoal.client import ServedModel
from shoal.errors import InvalidRequest, ShoalError
from shoal.types import EmbedReply, encode

DIMENSIONS = 12
MSGPACK = "application/msgpack"

Act = Callable[[Request, dict[str, Any]], Awaitable[Response | None]]
"""What happens to one request before it is served: an answer instead, or None to go on."""


def vector_of(text: str | list[int]) -> np.ndarray:
    """The vector that the server gives a text: float32 [DIMENSIONS], different for different texts."""
    seed = zlib.crc32(repr(text).encode("utf-8", "replace"))
    return np.random.default_rng(seed).normal(size=DIMENSIONS).astype(np.float32)


@dataclasses.dataclass
class WireServer:
    """A running server, what it was sent, and what it does next.

    Attributes:
        script: taken from by each request to /v1/embed, in order of arrival; empty = plain service.
        received: decoded bodies with the request's headers, in order of arrival.
        cards: what /v1/models lists.
        not_ready: what /readyz answers with, None = ready.
    """

    url: str = ""
    script: deque[Act] = dataclasses.field(default_factory=deque)
    received: list[tuple[dict[str, Any], dict[str, str]]] = dataclasses.field(default_factory=list)
    cards: list[ServedModel] = dataclasses.field(
        default_factory=lambda: [ServedModel("tiny", ("embed",), DIMENSIONS, 512, aliases=("little",), state="ready")]
    )
    not_ready: ShoalError | None = None
    always: Act | None = None

    def reset(self) -> None:
        """Forget what a test did; the address stays."""
        vars(self).update(vars(WireServer(self.url)))

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/embed", self._embed, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/readyz", self._ready),
            ]
        )

    async def _embed(self, request: Request) -> Response:
        body = msgspec.msgpack.decode(await request.body())
        self.received.append((body, dict(request.headers)))
        act = self.script.popleft() if self.script else self.always
        return (act and await act(request, body)) or embed_response(body, request.headers["x-request-id"])

    async def _models(self, request: Request) -> Response:
        entries = [
            {"object": "model", "created": 0, "owned_by": "x", **msgspec.to_builtins(card)} for card in self.cards
        ]
        return JSONResponse({"object": "list", "data": entries})

    async def _ready(self, request: Request) -> Response:
        return error_response(self.not_ready) if self.not_ready else JSONResponse({"status": "ready"})


def embed_response(body: dict[str, Any], request_id: str) -> Response:
    """The right answer."""
    rows = np.stack([vector_of(text) for text in body["input"]])
    dtype, scales = body["dtype"], []
    if dtype == "int8":
        scales = (np.abs(rows).max(axis=1) / 127).tolist()
        rows = np.round(rows / np.array(scales)[:, None]).astype(np.int8)
    elif dtype == "binary":
        scales = np.abs(rows).mean(axis=1).tolist()
        rows = np.packbits(rows > 0, axis=1)
    else:
        rows = rows.astype(dtype)
    reply = EmbedReply(
        model=body["model"],
        dtype=dtype,
        shape=(len(rows), DIMENSIONS),
        data=rows.tobytes(),
        num_tokens=[len(text) for text in body["input"]],
        truncated=[len(text) > 512 for text in body["input"]],
        scales=scales,
        times={"queue_ms": 1.0, "total_ms": 2.0},
        request_id=request_id,
    )
    return Response(encode(reply), media_type=MSGPACK)


def error_response(error: ShoalError, shape: str = "native") -> Response:
    """An error as the server writes it: in its own shape, in OpenAI's, or as a proxy would, without any."""
    headers = {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
    if shape == "bare":
        return Response("<html>busy</html>", error.status, headers, "text/html")
    if shape == "openai":
        fields: Any = {"message": error.message, "type": "x", "param": error.param, "code": error.code}
        return JSONResponse({"error": fields}, error.status, headers)
    return Response(encode({"error": error.to_body()}), error.status, headers, MSGPACK)


def refuse(error: ShoalError, shape: str = "native") -> Act:
    """Answer with an error."""

    async def act(request: Request, body: dict[str, Any]) -> Response:
        return error_response(error, shape)

    return act


def refuse_text(text: str) -> Act:
    """Refuse requests that hold this text, naming it by its place in the request."""

    async def act(request: Request, body: dict[str, Any]) -> Response | None:
        if text not in body["input"]:
            return None
        place = body["input"].index(text)
        return error_response(InvalidRequest(f"input[{place}] is bad.", param=f"input[{place}]"))

    return act


def answer(content: bytes, media_type: str) -> Act:
    """Answer 200 with anything."""

    async def act(request: Request, body: dict[str, Any]) -> Response:
        return Response(content, media_type=media_type)

    return act


class Broken(Response):
    """Promises a body, sends a part of it, and the connection breaks."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})
        await send({"type": "http.response.body", "body": b"part", "more_body": True})


async def lose_connection(request: Request, body: dict[str, Any]) -> Response:
    """Break the connection in the middle of the answer."""
    return Broken()


class Meeting:
    """Holds requests until a number of them are there at once."""

    def __init__(self, num_requests: int) -> None:
        self.num_requests = num_requests
        self.num_now = self.most = 0
        self._all_there = asyncio.Event()

    async def __call__(self, request: Request, body: dict[str, Any]) -> None:
        self.num_now += 1
        self.most = max(self.most, self.num_now)
        if self.num_now == self.num_requests:
            self._all_there.set()
        await self._all_there.wait()
        self.num_now -= 1


async def never(request: Request, body: dict[str, Any]) -> None:
    """Do not answer; ends when the server stops."""
    while not await request.is_disconnected():
        await asyncio.wait_for(request.receive(), None)


@contextlib.contextmanager
def serving() -> Iterator[WireServer]:
    """A server in a thread of this process, on a free port."""
    listener = socket.create_server(("127.0.0.1", 0))
    wire = WireServer(f"http://127.0.0.1:{listener.getsockname()[1]}")
    server = uvicorn.Server(uvicorn.Config(wire.app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield wire
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
