"""What log lines never hold."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from typing import Literal

import pytest

from shoal.telemetry.logs import configure_logging

SECRET = "what the user wrote"
Style = Literal["text", "json"]


@pytest.fixture
def configured() -> Iterator[Callable[[Style], io.StringIO]]:
    """`configured("json")`: logs go to what it returns, until the test ends."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level

    def configure(style: Style) -> io.StringIO:
        stream = io.StringIO()
        configure_logging(style, "DEBUG", stream)
        return stream

    yield configure
    root.handlers[:] = before
    root.setLevel(level)


@pytest.mark.parametrize("style", ["text", "json"])
def test_exceptions_show_where_and_not_what(configured: Callable[[Style], io.StringIO], style: Style) -> None:
    stream = configured(style)
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError(SECRET) from error
    except ValueError:
        logging.getLogger("some.library").exception("it failed")
    written = stream.getvalue()
    assert SECRET not in written
    assert "ValueError" in written
    assert "test_logs.py" in written
