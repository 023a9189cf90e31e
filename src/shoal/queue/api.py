"""Requests to JetStream's API over a connection. It must not know what streams are made for."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from shoal.errors import NotReady
from shoal.queue.connection import Connection, ConnectionLost
from shoal.queue.nats_client import Message

__all__ = ["FULL", "NOT_FOUND", "OTHER_CONFIGURATION", "RETRY_S", "Api", "ApiError", "error_of", "status_of"]

RETRY_S = 0.05

FULL = {10023, 10028, 10047, 10077}
"""No memory left, account limit, no storage left, stream limit reached."""

NOT_FOUND = {10014, 10043, 10059}
"""Consumer, message, stream."""

OTHER_CONFIGURATION = 10058


class ApiError(Exception):
    """An error that JetStream answered; `code` is its err_code."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{description} ({code})")
        self.code = code


class Api:
    """JetStream's API.

    Args:
        timeout_s: how long an answer may take, and how long it is asked for one while JetStream is not there yet.
    """

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()

    async def call(self, path: str, request: object = None) -> dict[str, Any]:
        """One request.

        Raises:
            NotReady: it does not answer.
            ApiError: it answers with an error.
        """
        answer = await self.ask(f"$JS.API.{path}", b"" if request is None else msgspec.json.encode(request))
        if status_of(answer) == "503":
            raise NotReady("The broker runs without JetStream, or it is still starting.")
        reply: dict[str, Any] = msgspec.json.decode(answer.data)
        if "error" in reply:
            raise error_of(answer.data)
        return reply

    async def call_patiently(self, path: str, request: object = None) -> dict[str, Any]:
        """As `call`, repeated while JetStream is not there yet."""
        deadline = self._loop.time() + self._timeout_s
        while True:
            try:
                return await self.call(path, request)
            except NotReady:
                if not self._connection.is_up or self._loop.time() > deadline:
                    raise
                await asyncio.sleep(RETRY_S)

    async def ask(self, subject: str, body: bytes) -> Message:
        """A request to any subject, for the raw answer.

        Raises:
            NotReady: there is none.
        """
        try:
            return await self._connection.ask(subject, body, self._timeout_s)
        except (ConnectionLost, TimeoutError):
            raise self.silent() from None

    def silent(self) -> NotReady:
        """The error for a broker that does not answer in time."""
        if self._connection.is_closing:
            return NotReady("The queue is closed.")
        return NotReady(
            f"The queue took no message within {self._timeout_s:g} s.",
            hint="Check that the broker runs.",
            retry_after_s=1.0,
        )


class _Failure(msgspec.Struct):
    err_code: int = 0
    code: int = 0
    description: str = ""


class _Refusal(msgspec.Struct):
    error: _Failure


def error_of(answer: bytes) -> ApiError:
    """The error that an answer holds."""
    failure = msgspec.json.decode(answer, type=_Refusal).error
    return ApiError(failure.err_code or failure.code, failure.description)


def status_of(answer: Message) -> str:
    """The status in an answer's headers; "" if there is none."""
    return answer.headers.get("Status", "") if answer.headers else ""
