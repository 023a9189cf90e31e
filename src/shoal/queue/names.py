"""What lanes and addresses are called in NATS.

NATS gives meaning to `.`, `*`, `>`, spaces and, in stream names, slashes; model ids hold any of them. `token` turns any
string into one word without them, and two strings never into the same word: letters, digits, `-` and `_` stand for
themselves, every other byte of the UTF-8 form is `=` and two hexadecimal digits (`org/m.1` is `org=2Fm=2E1`), and ""
is `=`. A word longer than 120 characters is cut and ends in `==` and a SHA-256 instead.
"""

from __future__ import annotations

import functools
import hashlib
import re
from urllib.parse import quote_from_bytes

from shoal.types import Lane

__all__ = [
    "address_subject",
    "consumer_name",
    "dead_stream_name",
    "dead_subject",
    "lane_subject",
    "message_id",
    "pool_subjects",
    "stream_name",
    "token",
]

_MAX_TOKEN = 120
_is_plain_id = re.compile(r"[A-Za-z0-9_.:-]{1,200}").fullmatch
_is_plain = re.compile(r"[A-Za-z0-9_-]+").fullmatch


def token(text: str) -> str:
    """One word of a subject that stands for `text`."""
    if _is_plain(text) and len(text) <= _MAX_TOKEN:
        return text
    raw = text.encode("utf-8", "surrogatepass")
    # quote leaves `.` and `~` alone; neither may stay, and `=` itself is quoted, so the words cannot collide.
    word = quote_from_bytes(raw, safe="").replace(".", "%2E").replace("~", "%7E").replace("%", "=") or "="
    if len(word) <= _MAX_TOKEN:
        return word
    return f"{word[:40]}=={hashlib.sha256(raw).hexdigest()}"


def message_id(text: str) -> str:
    """A header's value that stands for `text`: as `token`, but the dots and colons of our own ids may stay."""
    return text if _is_plain_id(text) else token(text)


def stream_name(pool: str) -> str:
    """The stream that holds the lanes of a pool."""
    return f"SHOAL_{token(pool)}"


def dead_stream_name(pool: str) -> str:
    """The stream of a pool's dead letters."""
    return f"SHOAL-DEAD_{token(pool)}"


def dead_subject(pool: str) -> str:
    """Where a pool's dead letters are published."""
    return f"shoal.dead.{token(pool)}"


def pool_subjects(pool: str) -> str:
    """All lanes of a pool."""
    return f"shoal.lane.{token(pool)}.>"


@functools.lru_cache(maxsize=8192)
def lane_subject(lane: Lane) -> str:
    """Where the messages of a lane are published."""
    return f"shoal.lane.{token(lane.pool)}.{token(lane.model)}.{lane.priority}"


def consumer_name(lane: Lane, incarnation: str) -> str:
    """The consumer that all workers of the pool share for a lane.

    `incarnation` differs for a stream that was lost and made anew: sequence numbers start again at 1 there, and an ack
    that was meant for the old stream must not find a consumer to take it.
    """
    return f"{token(lane.model)}-{lane.priority}-{incarnation}"


@functools.lru_cache(maxsize=8192)
def address_subject(address: str) -> str:
    """Where plain messages to an address go."""
    return "shoal.plain." + ".".join(token(word) for word in address.split("."))
