"""Shoal's own API: JSON and MessagePack in and out. Translates and nothing else.

MessagePack replies carry one matrix (`types.EmbedReply`). JSON replies carry a list: float32, float16 and int8 as
numbers, or with `encoding: "base64"` each row's little-endian bytes; binary is always base64.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shoal.errors import ShoalError
from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import Input, InputTokenizer, Normalize, PromptName, Truncate, TruncationSide
from shoal.types import EmbedOptions, EmbedReply, Render

__all__ = ["Native", "NativeEmbedRequest", "NativeError", "NativeReply"]


class NativeEmbedRequest(msgspec.Struct):
    """Texts to vectors; null means absent, unknown fields are ignored."""

    input: Input = msgspec.field(default_factory=msgspec.Raw)
    model: Annotated[str | None, Meta(description="Id or alias of a model, as /v1/models lists them.")] = None
    dimensions: Annotated[
        int | None, Meta(description="Cut to so many numbers and renormalise; only models trained for it.")
    ] = None
    dtype: Annotated[
        Literal["float32", "float16", "int8", "binary"] | None,
        Meta(description="int8: value = stored * scale; binary: one bit a number, value = (+1 or -1) * scale."),
    ] = None
    normalize: Normalize = None
    truncate: Truncate = None
    truncation_side: TruncationSide = None
    prompt_name: PromptName = None
    prompt: Annotated[str | None, Meta(description="Literal text in front of each text, instead of prompt_name.")] = (
        None
    )
    input_tokenizer: InputTokenizer = None
    encoding: Annotated[
        Literal["json", "base64"] | None,
        Meta(description="Of vectors in a JSON reply: numbers, or base64 of the row's bytes. binary is always base64."),
    ] = None


class NativeUsage(msgspec.Struct):
    """Tokens really run, special tokens included, after truncation."""

    num_tokens: int


class NativeReply(msgspec.Struct):
    """The reply in JSON: entries in the order of the input. In MessagePack it is EmbedReply."""

    model: str
    dtype: Literal["float32", "float16", "int8", "binary"]
    dimensions: int
    embeddings: Annotated[list[list[float] | str], Meta(description="Numbers, or base64 of each row's bytes.")]
    num_tokens: Annotated[list[int], Meta(description="Tokens really run, an entry a text.")]
    truncated: Annotated[list[bool], Meta(description="Whether each text was cut.")]
    usage: NativeUsage
    times: Annotated[dict[str, float], Meta(description="queue_ms, tokenize_ms, batch_ms, inference_ms, total_ms.")]
    request_id: str
    scales: Annotated[list[float] | msgspec.UnsetType, Meta(description="With int8 and binary: a number a row.")] = (
        msgspec.UNSET
    )


class NativeErrorBody(msgspec.Struct):
    """What went wrong, where, and what to do about it."""

    code: str
    message: str
    param: str | None
    hint: str | None
    request_id: str


class NativeError(msgspec.Struct):
    """Every answer that is no success."""

    error: NativeErrorBody


_encoders = {"json": msgspec.json.Encoder().encode, "msgpack": msgspec.msgpack.Encoder().encode}
_encode = _encoders["json"]
_RAW, _JSON, _BASE64 = Render("raw"), Render("json"), Render("base64")


class Native:
    """POST /v1/embed."""

    route = "/v1/embed"
    formats: tuple[Format, ...] = ("json", "msgpack")

    def __init__(self) -> None:
        self._envelope = Envelope(NativeEmbedRequest)

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        options = EmbedOptions(
            dimensions=request.dimensions,
            normalize=request.normalize,
            truncate=request.truncate,
            truncation_side=request.truncation_side,
            prompt_name=request.prompt_name,
            prompt=request.prompt,
            dtype=request.dtype or "float32",
        )
        return Ask(
            model=request.model,
            operation="embed",
            input=request.input,
            input_format=body_format,
            options=options,
            render=_render(request, reply_format),
            input_tokenizer=request.input_tokenizer,
        )

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        return _msgpack_reply(answer) if reply_format == "msgpack" else _json_reply(answer)

    def error(self, error: ShoalError, request_id: str, reply_format: Format) -> bytes:
        body = NativeErrorBody(error.code, error.message, error.param, error.hint, request_id)
        return _encoders[reply_format](NativeError(body))


def _render(request: NativeEmbedRequest, reply_format: Format) -> Render:
    if reply_format == "msgpack":
        return _RAW
    return _BASE64 if request.encoding == "base64" or request.dtype == "binary" else _JSON


def _msgpack_reply(answer: Answer) -> bytes:
    replies = answer.replies
    reply = EmbedReply(
        model=answer.card.id,
        dtype=answer.ask.options.dtype,
        shape=(answer.num_items, replies[0].dimensions),
        data=replies[0].body if len(replies) == 1 else b"".join([reply.body for reply in replies]),
        num_tokens=[count for reply in replies for count in reply.num_tokens],
        truncated=[was_cut for reply in replies for was_cut in reply.truncated],
        scales=[scale for reply in replies for scale in reply.scales],
        times=_times(answer),
        request_id=answer.request_id,
        profile=replies[0].profile,
    )
    return _encoders["msgpack"](reply)


def _json_reply(answer: Answer) -> bytes:
    replies = answer.replies
    head = {"model": answer.card.id, "dtype": answer.ask.options.dtype, "dimensions": replies[0].dimensions}
    tail: dict[str, Any] = {
        "num_tokens": [count for reply in replies for count in reply.num_tokens],
        "truncated": [was_cut for reply in replies for was_cut in reply.truncated],
        "usage": {"num_tokens": answer.num_tokens},
        "times": _times(answer),
        "request_id": answer.request_id,
    }
    if scales := [scale for reply in replies for scale in reply.scales]:
        tail = {"scales": scales, **tail}
    if replies[0].profile:
        tail["profile"] = replies[0].profile
    vectors = b",".join([reply.body for reply in replies])
    return b'%b,"embeddings":[%b],%b' % (_encode(head)[:-1], vectors, _encode(tail)[1:])


def _times(answer: Answer) -> dict[str, float]:
    times = answer.times
    return {
        "queue_ms": round(times.queue_s * 1e3, 3),
        "tokenize_ms": round(times.tokenize_s * 1e3, 3),
        "batch_ms": round(times.batch_s * 1e3, 3),
        "inference_ms": round(times.inference_s * 1e3, 3),
        "total_ms": round(answer.total_s * 1e3, 3),
    }
