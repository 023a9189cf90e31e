"""What is told of a request that is over: a line of the access log, a trace. Neither holds a text of the request."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from shoal.telemetry.tracing import Tracing
from shoal.types import StageTimes

__all__ = ["Record", "Records"]

_log = logging.getLogger("shoal.access")

_CONTEXT = (b"traceparent", b"tracestate")
_SHOWN_BYTES = 100


class Record(NamedTuple):
    """A request that is over.

    Attributes:
        status: 499 if the client has gone.
        code: of the error, "" for a success.
        tenant, key_id: "" without keys.
        seconds: from the first byte read to the last one written.
        times: where they went, of a success.
    """

    method: str
    route: str
    status: int
    code: str
    model: str
    request_id: str
    seconds: float
    tenant: str
    key_id: str
    headers: Mapping[bytes, bytes]
    times: StageTimes | None


class Records:
    """Those who want to know.

    Attributes:
        are_wanted: whether there is anybody.
    """

    def __init__(self, has_log: bool, tracing: Tracing | None) -> None:
        self._has_log = has_log
        self._tracing = tracing
        self.are_wanted = has_log or tracing is not None

    def tell(self, record: Record) -> None:
        if self._has_log:
            _write(record)
        if self._tracing is not None:
            _trace(self._tracing, record)


def _write(record: Record) -> None:
    fields: dict[str, Any] = {
        "method": record.method,
        "route": record.route,
        "status": record.status,
        "model": record.model,
        "ms": round(record.seconds * 1e3, 2),
        "request_id": record.request_id,
    }
    named = {"code": record.code, "tenant": record.tenant, "key": record.key_id}
    fields |= {name: value for name, value in named.items() if value}
    if (traceparent := record.headers.get(b"traceparent")) is not None:
        fields["traceparent"] = traceparent[:_SHOWN_BYTES].decode("latin-1")
    _log.info("request", extra={"fields": fields})


def _trace(tracing: Tracing, record: Record) -> None:
    end_ns = time.time_ns()
    sent = {name: record.headers[name] for name in _CONTEXT if name in record.headers}
    times = record.times
    tracing.request(
        f"{record.method} {record.route}",
        {name.decode(): value.decode("latin-1") for name, value in sent.items()},
        end_ns - int(record.seconds * 1e9),
        end_ns,
        {
            "http.request.method": record.method,
            "http.route": record.route,
            "http.response.status_code": record.status,
            "shoal.model": record.model,
            "shoal.request_id": record.request_id,
        },
        {}
        if times is None
        else {
            "queue": times.queue_s,
            "tokenize": times.tokenize_s,
            "batch": times.batch_s,
            "inference": times.inference_s,
        },
        record.code,
    )
