"""Names in NATS: legal, and different for different strings."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.queue.names import address_subject, consumer_name, lane_subject, message_id, stream_name, token
from shoal.types import Lane


@given(st.text(max_size=300))
@example("")
@example("=")
@example("~.%/\\*>")
@example("\ud800")
def test_a_token_is_one_short_legal_word(text: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_=-]{1,120}", token(text))


@given(st.text(max_size=60), st.text(max_size=60))
@example("", "=")
@example("a.b", "a=2Eb")
@example("x" * 120, "x" * 121)
@example("x" * 130, token("x" * 130))
def test_different_strings_have_different_tokens(left: str, right: str) -> None:
    assert (token(left) == token(right)) == (left == right)


@given(st.text(max_size=30) | st.from_regex(r"[a-c.:]{0,5}", fullmatch=True), st.text(max_size=30))
@example("r-1f.0", "r-1f=2E0")
@example("a\nNats-Expected-Stream: b", "")
@example("x" * 300, "x" * 301)
def test_different_ids_have_different_headers_of_one_line(left: str, right: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_.:=-]{1,200}", message_id(left))
    assert (message_id(left) == message_id(right)) == (left == right)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("plain-Name_1", "plain-Name_1"), ("org/m.1", "org=2Fm=2E1"), ("é", "=C3=A9"), ("", "=")],
)
def test_tokens_are_as_documented(text: str, expected: str) -> None:
    assert token(text) == expected


def test_names_of_a_lane() -> None:
    lane = Lane("pool a", "org/m", "bulk")
    assert stream_name(lane.pool) == "SHOAL_pool=20a"
    assert lane_subject(lane) == "shoal.lane.pool=20a.org=2Fm.bulk"
    assert consumer_name(lane, "0123abcd") == "org=2Fm-bulk-0123abcd"
    assert address_subject("status.pool a") == "shoal.plain.status.pool=20a"
