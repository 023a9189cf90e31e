"""What the replies of OpenAI, Jina and Voyage have in common: a list of objects that hold a vector each."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from shoal.gateway.ask import Answer
from shoal.types import Render

__all__ = ["BASE64", "NUMBERS", "ListedVector", "vectors"]

_BEFORE, _BETWEEN, _AFTER = b'{"object":"embedding","index":', b',"embedding":', b"}"
NUMBERS = Render("json", _BEFORE, True, _BETWEEN, _AFTER)
BASE64 = Render("base64", _BEFORE, True, _BETWEEN, _AFTER)


class ListedVector(msgspec.Struct):
    """One vector."""

    object: Literal["embedding"]
    index: Annotated[int, Meta(description="Place of its text in input.")]
    embedding: Annotated[list[float] | str, Meta(description="Numbers, or base64 of their little-endian bytes.")]


def vectors(answer: Answer, usage: bytes) -> bytes:
    """The whole reply.

    Args:
        usage: what the surface says of tokens, encoded.
    """
    name = msgspec.json.encode(answer.card.id)
    return b'{"object":"list","data":[%b],"model":%b,"usage":%b}' % (answer.body(between=b","), name, usage)
