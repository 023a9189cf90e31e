"""TEI's API to tokenise, there and back. Translates and nothing else; see `tei`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import Texts
from shoal.gateway.surfaces.tei import PromptName, Tei, ask_of
from shoal.types import Render, TokenizeOptions

__all__ = ["TeiDecode", "TeiDecodeRequest", "TeiToken", "TeiTokenize", "TeiTokenizeRequest"]

_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}


class TeiTokenizeRequest(msgspec.Struct):
    """Texts to tokens, however many; null means absent, unknown fields are ignored."""

    inputs: Texts = msgspec.field(default_factory=msgspec.Raw)
    add_special_tokens: Annotated[bool | None, Meta(description="Default true.")] = None
    prompt_name: PromptName = None


class TeiToken(msgspec.Struct):
    """A token; start and stop are code points of the text as it was sent, null of special tokens."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class TeiDecodeRequest(msgspec.Struct):
    """Tokens to texts; null means absent, unknown fields are ignored."""

    ids: Annotated[
        msgspec.Raw,
        Meta(
            description="A list of token ids, or lists of them.",
            extra_json_schema={"oneOf": [_IDS, {"type": "array", "items": _IDS, "minItems": 1}]},
        ),
    ] = msgspec.field(default_factory=msgspec.Raw)
    skip_special_tokens: Annotated[bool | None, Meta(description="Leave them out of the texts. Default true.")] = None


class TeiTokenize(Tei):
    """POST /tei/tokenize."""

    route = "/tei/tokenize"

    def __init__(self) -> None:
        self._envelope = Envelope(TeiTokenizeRequest, "inputs")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        options = TokenizeOptions(
            has_special_tokens=request.add_special_tokens is not False, prompt_name=request.prompt_name
        )
        return ask_of(request.inputs, body_format, options, Render("entries"))

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        return b"[%b]" % answer.body(between=b",")


class TeiDecode(Tei):
    """POST /tei/decode."""

    route = "/tei/decode"
    names = Tei.names | {"input": "ids"}

    def __init__(self) -> None:
        self._envelope = Envelope(TeiDecodeRequest, "ids")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        options = TokenizeOptions(has_special_tokens=request.skip_special_tokens is False, decodes=True)
        return ask_of(request.ids, body_format, options, Render("json"))

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        return b"[%b]" % answer.body(between=b",")
