"""Log lines, as text for people or as JSON for machines. Structured fields ride on a record: `extra={"fields": {...}}`.

No line holds a user's text: callers log names, numbers and ids, and an exception shows as its type and the lines that
it came through, without its message, which might quote input. Who knows a message to be harmless logs it himself.
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from typing import Any, Literal, TextIO

import msgspec

__all__ = ["configure_logging", "where"]


def configure_logging(
    style: Literal["text", "json"] = "text", level: str = "INFO", stream: TextIO | None = None
) -> None:
    """Send the logs of this process to a stream (stderr), replacing whatever was set up before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonLines() if style == "json" else _TextLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    if level == "INFO":  # the HTTP server's own start and stop lines say nothing that ours do not
        logging.getLogger("uvicorn").setLevel("WARNING")


def where(error: BaseException) -> str:
    """Type of an exception and the lines it came through, without its message."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{type(error).__name__}\n{frames}".rstrip()


class _WithoutMessages(logging.Formatter):
    """Shows exceptions, libraries' included, as `where` does."""

    def formatException(self, ei: Any) -> str:  # noqa: N802  # logging's name
        return where(ei[1]) if ei[1] is not None else ""


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


class _TextLines(_WithoutMessages):
    """`time level logger message key=value ...`."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname.lower():7} {record.name} {record.getMessage()}"
        for name, value in _fields(record).items():
            line += f" {name}={value}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class _JsonLines(_WithoutMessages):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()
