"""Every error that Shoal raises on purpose, in one tree.

    ShoalError
    ├── InvalidRequest          400  invalid_request        the caller must change the request
    │   ├── ContextLengthExceeded 400 context_length_exceeded a text is too long and truncation is off
    │   └── UnsupportedOperation 400 unsupported_operation  the model cannot do what was asked
    ├── Unauthorized            401  unauthorized           key missing or wrong
    ├── Forbidden               403  forbidden              the key does not allow this
    ├── UnknownModel            404  model_not_found        no such model here
    ├── UnknownRoute            404  route_not_found        no such path here
    ├── MethodNotAllowed        405  method_not_allowed     the path exists, with another method
    ├── TooLarge                413  too_large              body, item or list beyond a limit
    ├── UnsupportedMediaType    415  unsupported_media_type neither JSON nor MessagePack
    ├── Overloaded              429  overloaded             retry after the time stated
    │   └── QuotaExceeded       429  quota_exceeded         the key has used up what it may
    ├── InternalError           500  internal_error         a fault of ours
    ├── NotReady                503  not_ready              loading or draining: retry after the time stated
    ├── DeadlineExceeded        504  deadline_exceeded      the caller's time ran out
    └── ModelRefused            422  model_refused          a model directory that we do not fully understand

The same `code` stands in every surface, in the metrics and on the wire between processes. This file knows nothing of
HTTP frameworks: a surface maps `status` and shapes the body.
"""

from __future__ import annotations

from typing import ClassVar

from shoal.types import ErrorBody

__all__ = [
    "CODES",
    "ContextLengthExceeded",
    "DeadlineExceeded",
    "Forbidden",
    "InternalError",
    "InvalidRequest",
    "MethodNotAllowed",
    "ModelRefused",
    "NotReady",
    "Overloaded",
    "QuotaExceeded",
    "ShoalError",
    "TooLarge",
    "Unauthorized",
    "UnknownModel",
    "UnknownRoute",
    "UnsupportedMediaType",
    "UnsupportedOperation",
]


class ShoalError(Exception):
    """Base of all errors raised on purpose.

    Attributes:
        code: stable machine-readable name, the same in every surface and in the metrics.
        status: HTTP status.
        is_retryable: whether the same request may succeed later, unchanged.
        message: one sentence naming field, value and limit.
        param: the offending field of the request, such as `input[3]`.
        hint: what to do about it.
        retry_after_s: seconds to wait before trying again, measured where possible.
    """

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    is_retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        hint: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.hint = hint
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message

    def to_body(self) -> ErrorBody:
        """The wire form of this error."""
        return ErrorBody(self.code, self.message, self.param, self.hint, self.retry_after_s)

    @staticmethod
    def from_body(body: ErrorBody) -> ShoalError:
        """The exception that `body` describes; an unknown code becomes `InternalError`."""
        kind = _BY_CODE.get(body.code, InternalError)
        return kind(body.message, param=body.param, hint=body.hint, retry_after_s=body.retry_after_s)


class InvalidRequest(ShoalError):
    """The request cannot be served as it is; sending it again will not help."""

    code = "invalid_request"
    status = 400


class ContextLengthExceeded(InvalidRequest):
    """A text is longer than the model takes and truncation is off."""

    code = "context_length_exceeded"


class UnsupportedOperation(InvalidRequest):
    """The model exists but cannot do this operation or produce this output."""

    code = "unsupported_operation"


class Unauthorized(ShoalError):
    """No key, or a wrong one."""

    code = "unauthorized"
    status = 401


class Forbidden(ShoalError):
    """The key is right, but does not allow this."""

    code = "forbidden"
    status = 403


class UnknownModel(ShoalError):
    """No model of this name is served here."""

    code = "model_not_found"
    status = 404


class UnknownRoute(ShoalError):
    """No such path."""

    code = "route_not_found"
    status = 404


class MethodNotAllowed(ShoalError):
    """The path exists, with another method."""

    code = "method_not_allowed"
    status = 405


class TooLarge(ShoalError):
    """A body, an item or a list is beyond its limit."""

    code = "too_large"
    status = 413


class UnsupportedMediaType(ShoalError):
    """The body is neither JSON nor MessagePack."""

    code = "unsupported_media_type"
    status = 415


class ModelRefused(ShoalError):
    """A model directory holds something that Shoal does not understand; serving it could give wrong vectors."""

    code = "model_refused"
    status = 422


class Overloaded(ShoalError):
    """More work is queued than can be done in time."""

    code = "overloaded"
    status = 429
    is_retryable = True


class QuotaExceeded(Overloaded):
    """The key has used up the tokens of this minute, or has as many requests under way as it may."""

    code = "quota_exceeded"


class InternalError(ShoalError):
    """A fault of ours."""

    code = "internal_error"
    status = 500


class NotReady(ShoalError):
    """The model is loading, or the server is starting or draining."""

    code = "not_ready"
    status = 503
    is_retryable = True


class DeadlineExceeded(ShoalError):
    """The caller's time ran out before the work was done."""

    code = "deadline_exceeded"
    status = 504
    is_retryable = True


def _tree(kind: type[ShoalError]) -> list[type[ShoalError]]:
    return [kind, *(leaf for child in kind.__subclasses__() for leaf in _tree(child))]


_BY_CODE: dict[str, type[ShoalError]] = {kind.code: kind for kind in _tree(ShoalError) if kind is not ShoalError}

CODES: tuple[str, ...] = tuple(sorted(_BY_CODE))
"""The codes of all errors."""
