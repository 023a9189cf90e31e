"""The two formats that bodies come in, and their names in HTTP headers."""

from __future__ import annotations

from typing import Literal

from shoal.errors import UnsupportedMediaType

__all__ = ["MEDIA_TYPES", "Format", "reply_format", "request_format"]

Format = Literal["json", "msgpack"]

MEDIA_TYPES: dict[Format, bytes] = {"json": b"application/json", "msgpack": b"application/msgpack"}
"""What a body of each format is called in replies."""

_FORMATS: dict[bytes, Format] = {
    b"application/json": "json",
    b"text/json": "json",
    b"application/msgpack": "msgpack",
    b"application/x-msgpack": "msgpack",
    b"application/vnd.msgpack": "msgpack",
}


def request_format(content_type: bytes, allowed: tuple[Format, ...]) -> Format:
    """The format of a body with this Content-Type; JSON where there is none.

    Raises:
        UnsupportedMediaType: another one than those allowed.
    """
    name = _FORMATS.get(content_type) or _FORMATS.get(content_type.partition(b";")[0].strip().lower())
    if not content_type:
        name = "json"
    if name is None or name not in allowed:
        names = " or ".join(MEDIA_TYPES[allowed_format].decode() for allowed_format in allowed)
        given = content_type[:100].decode("latin-1")
        raise UnsupportedMediaType(f"The Content-Type is {given!r}; this route takes {names}.", param="Content-Type")
    return name


def reply_format(accept: bytes, body_format: Format) -> Format:
    """The format to answer in: the first one named in Accept, else that of the body."""
    if not accept or accept == b"*/*":
        return body_format
    for choice in accept.split(b","):
        name = _FORMATS.get(choice.partition(b";")[0].strip().lower())
        if name is not None:
            return name
    return body_format
