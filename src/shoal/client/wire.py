"""Requests to bytes, answers to results, and every way of failing to the one tree of errors. No I/O.

This is the only file of the client that knows how HTTP and bodies look; the clients only send.
"""

from __future__ import annotations

import datetime
import email.utils
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import httpx
import msgspec

from shoal.client.result import ServedModel
from shoal.client.split import Item
from shoal.errors import (
    DeadlineExceeded,
    Forbidden,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    ModelRefused,
    NotReady,
    Overloaded,
    ShoalError,
    TooLarge,
    Unauthorized,
    UnknownRoute,
    UnsupportedMediaType,
)
from shoal.types import ErrorBody, encode

__all__ = [
    "MSGPACK",
    "body_of",
    "connection_error",
    "place_of",
    "read_error",
    "read_models",
    "read_reply",
    "renumbered",
]

T = TypeVar("T")

MSGPACK = "application/msgpack"

_BY_STATUS: dict[int, type[ShoalError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: UnknownRoute,
    405: MethodNotAllowed,
    413: TooLarge,
    415: UnsupportedMediaType,
    422: ModelRefused,
    429: Overloaded,
    502: NotReady,
    503: NotReady,
    504: DeadlineExceeded,
}
"""For answers that do not come from Shoal itself but from something in front of it."""

_place = re.compile(r"^(.*?\b(?:input|documents)\[)(\d+)(\].*)$", re.DOTALL)


def body_of(items: Sequence[Item], fields: dict[str, Any], items_field: str = "input") -> bytes:
    """The body of a request, in MessagePack; fields that are None are left out.

    Args:
        items_field: what the route calls its items.

    Raises:
        InvalidRequest: a text cannot be written as UTF-8 or a list of token ids holds something else; `param` names it.
    """
    envelope = {name: value for name, value in fields.items() if value is not None}
    try:
        return encode({**envelope, items_field: items})
    except (UnicodeEncodeError, TypeError, OverflowError):
        for place, item in enumerate(items):
            _check_item(f"{items_field}[{place}]", item)
        raise


def _check_item(name: str, item: Item) -> None:
    try:
        encode(item)
    except (UnicodeEncodeError, TypeError, OverflowError) as error:
        raise InvalidRequest(f"{name} cannot be sent: {error}.", param=name) from error


def read_reply(response: httpx.Response, kind: type[T]) -> T:
    """The reply of one of Shoal's own routes, in MessagePack.

    Raises:
        InternalError: it is not what Shoal answers.
    """
    try:
        return msgspec.msgpack.decode(response.content, type=kind)
    except msgspec.MsgspecError as error:
        raise _strange(response) from error


def read_models(response: httpx.Response) -> list[ServedModel]:
    """The entries of /v1/models; a server that only speaks OpenAI's shape gives names alone.

    Raises:
        InternalError: it is not a list of models.
    """
    unknown = {"operations": (), "dimensions": 0, "max_length": 0}
    try:
        entries = msgspec.json.decode(response.content)["data"]
        return [msgspec.convert({**unknown, **entry}, ServedModel) for entry in entries]
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise _strange(response) from error


def _strange(response: httpx.Response) -> InternalError:
    kind = response.headers.get("content-type", "no content type")
    return InternalError(
        f"{response.url} answered {response.status_code} with {kind}, which is not an answer of Shoal's.",
        hint="Does the URL lead to a Shoal server?",
    )


def read_error(response: httpx.Response) -> ShoalError:
    """The exception that an answer with an error status means.

    Understands Shoal's own body and OpenAI's; where there is neither, the status decides.
    """
    fields = _error_fields(response)
    retry_after_s = fields.get("retry_after_s")
    if not isinstance(retry_after_s, (int, float)):
        retry_after_s = _retry_after_s(response)
    code, message, param, hint = (_text(fields.get(name)) for name in ("code", "message", "param", "hint"))
    message = message or f"{response.url} answered {response.status_code} {response.reason_phrase}."
    if code:
        known = ShoalError.from_body(ErrorBody(code, message, param, hint, retry_after_s))
        if known.code == code:
            return known
    fallback = InternalError if response.status_code >= 500 else InvalidRequest
    kind = _BY_STATUS.get(response.status_code, fallback)
    return kind(message, param=param, hint=hint, retry_after_s=retry_after_s)


def _error_fields(response: httpx.Response) -> dict[str, Any]:
    decode = msgspec.msgpack.decode if MSGPACK in response.headers.get("content-type", "") else msgspec.json.decode
    try:
        body = decode(response.content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    fields = body.get("error", body) if isinstance(body, dict) else {}
    return fields if isinstance(fields, dict) else {"message": fields}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _retry_after_s(response: httpx.Response) -> float | None:
    """Retry-After: seconds, or the date of HTTP."""
    text = response.headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    try:
        when = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    return max(0.0, (when - datetime.datetime.now(datetime.UTC)).total_seconds())


def connection_error(error: httpx.HTTPError | httpx.InvalidURL, base_url: str, timeout_s: float) -> ShoalError:
    """The exception for a request that got no answer."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return NotReady(
            f"No server answers at {base_url}: {error or type(error).__name__}.",
            hint="Start one with `shoal serve`, or name another with --url, SHOAL_URL or base_url.",
        )
    if isinstance(error, httpx.TimeoutException):
        return DeadlineExceeded(f"{base_url} did not answer within {timeout_s:.3g} s.", hint="Allow a longer time-out.")
    if isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL):
        return InvalidRequest(
            f"{base_url!r} is not a URL that can be reached: {error}", hint="It looks like http://127.0.0.1:8080."
        )
    return NotReady(f"The connection to {base_url} was lost: {error or type(error).__name__}.")


def place_of(error: ShoalError) -> int | None:
    """Which item of the list an error is about; None if it is about no single one."""
    found = _place.match(error.param or "")
    return int(found[2]) if found else None


def renumbered(error: ShoalError, first_item: int) -> ShoalError:
    """The same error with `input[3]` counted from the start of the caller's list instead of its request's."""
    if first_item == 0:
        return error
    shifted = [
        text and _place.sub(lambda found: f"{found[1]}{int(found[2]) + first_item}{found[3]}", text)
        for text in (error.message, error.param)
    ]
    return type(error)(
        shifted[0] or error.message, param=shifted[1], hint=error.hint, retry_after_s=error.retry_after_s
    )
