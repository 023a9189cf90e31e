"""Shoal's own API to embed: JSON and MessagePack in and out. Translates and nothing else.

MessagePack replies carry one matrix an output (`types.EmbedReply`). JSON replies carry lists: float32, float16 and int8
as numbers, or with `encoding: "base64"` each row's little-endian bytes; binary is always base64.
"""

from __future__ import annotations

import itertools
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shoal.errors import ShoalError
from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import (
    Dimensions,
    Input,
    InputTokenizer,
    Normalize,
    Overflow,
    Prompt,
    PromptName,
    Truncate,
    TruncationSide,
    overflow_of,
)
from shoal.types import EmbedOptions, EmbedReply, MultiVectorRows, Output, Render, SparseRows

__all__ = [
    "Native",
    "NativeEmbedRequest",
    "NativeError",
    "NativeReply",
    "NativeSparse",
    "NativeSurface",
    "NativeTokenVectors",
    "NativeUsage",
    "array_of",
    "closing",
    "encoders",
    "times_of",
]


class NativeEmbedRequest(msgspec.Struct):
    """Texts to vectors; null means absent, unknown fields are ignored."""

    input: Input = msgspec.field(default_factory=msgspec.Raw)
    model: Annotated[str | None, Meta(description="Id or alias of a model, as /v1/models lists them.")] = None
    dimensions: Dimensions = None
    dtype: Annotated[
        Literal["float32", "float16", "int8", "binary"] | None,
        Meta(description="int8: value = stored * scale; binary: one bit a number, value = (+1 or -1) * scale."),
    ] = None
    normalize: Normalize = None
    truncate: Truncate = None
    overflow: Overflow = None
    truncation_side: TruncationSide = None
    prompt_name: PromptName = None
    prompt: Prompt = None
    input_tokenizer: InputTokenizer = None
    encoding: Annotated[
        Literal["json", "base64"] | None,
        Meta(description="Of vectors in a JSON reply: numbers, or base64 of the row's bytes. binary is always base64."),
    ] = None
    outputs: Annotated[
        list[Literal["dense", "sparse", "multivector"]] | None,
        Meta(description="What to return, all from one run; absent: dense. multivector: a vector a token (ColBERT)."),
    ] = None
    input_type: Annotated[
        Literal["query", "document"] | None,
        Meta(
            description="What the texts are: takes the model's prompt of that name, if it has one. For multivector it "
            "also decides on length, expansion and skipped tokens; absent: document."
        ),
    ] = None
    top_k: Annotated[
        int | None,
        Meta(description="Of sparse vectors: keep so many of the largest weights.", extra_json_schema={"minimum": 1}),
    ] = None
    threshold: Annotated[float | None, Meta(description="Of sparse vectors: keep weights above it. Default 0.")] = None
    pool_factor: Annotated[
        float | None,
        Meta(description="Of multivector, for documents: merge vectors by likeness, into about one for so many."),
    ] = None


class NativeUsage(msgspec.Struct):
    """Tokens really run, special tokens included, after truncation."""

    num_tokens: int


class NativeSparse(msgspec.Struct):
    """A sparse vector."""

    indices: Annotated[list[int], Meta(description="Words of the model's vocabulary, ascending.")]
    values: Annotated[list[float], Meta(description="Their weights, all above zero.")]


class NativeTokenVectors(msgspec.Struct):
    """The vectors of a text's tokens as bytes."""

    shape: Annotated[tuple[int, int], Meta(description="Vectors, and numbers a vector (for binary, bits).")]
    data: Annotated[str, Meta(description="base64 of the rows, little-endian.")]


class NativeReply(msgspec.Struct):
    """The reply in JSON: entries in the order of the input. In MessagePack it is EmbedReply.

    dtype, dimensions and embeddings are there if dense vectors were asked for, sparse if sparse ones were, and dtype,
    multivector_dimensions and multivector if those were.
    """

    model: str
    num_tokens: Annotated[list[int], Meta(description="Tokens really run, an entry a text.")]
    truncated: Annotated[list[bool], Meta(description="Whether each text was cut.")]
    usage: NativeUsage
    times: Annotated[dict[str, float], Meta(description="queue_ms, tokenize_ms, batch_ms, inference_ms, total_ms.")]
    request_id: str
    dtype: Literal["float32", "float16", "int8", "binary"] | msgspec.UnsetType = msgspec.UNSET
    dimensions: int | msgspec.UnsetType = msgspec.UNSET
    embeddings: Annotated[
        list[list[float] | str] | msgspec.UnsetType, Meta(description="Numbers, or base64 of each row's bytes.")
    ] = msgspec.UNSET
    scales: Annotated[list[float] | msgspec.UnsetType, Meta(description="With int8 and binary: a number a row.")] = (
        msgspec.UNSET
    )
    sparse: list[NativeSparse] | msgspec.UnsetType = msgspec.UNSET
    multivector_dimensions: int | msgspec.UnsetType = msgspec.UNSET
    multivector: Annotated[
        list[list[list[float]] | NativeTokenVectors] | msgspec.UnsetType,
        Meta(description="For each text a list of vectors, or their bytes with a shape."),
    ] = msgspec.UNSET
    multivector_scales: Annotated[
        list[list[float]] | msgspec.UnsetType,
        Meta(description="With int8 and binary: a number a vector."),
    ] = msgspec.UNSET


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


encoders = {"json": msgspec.json.Encoder().encode, "msgpack": msgspec.msgpack.Encoder().encode}
_encode = encoders["json"]
_RAW, _JSON, _BASE64 = Render("raw"), Render("json"), Render("base64")


class NativeSurface:
    """What all of Shoal's own routes share."""

    formats: tuple[Format, ...] = ("json", "msgpack")
    statuses: dict[str, int] = {}
    names: dict[str, str] = {}

    def error(self, error: ShoalError, request_id: str, reply_format: Format) -> bytes:
        body = NativeErrorBody(error.code, error.message, error.param, error.hint, request_id)
        return encoders[reply_format](NativeError(body))


def closing(answer: Answer) -> dict[str, Any]:
    """What stands at the end of each reply."""
    return {
        "num_tokens": answer.tokens_by_item,
        "truncated": answer.truncated_by_item,
        "usage": {"num_tokens": answer.num_tokens},
        "times": times_of(answer),
        "request_id": answer.request_id,
    }


class Native(NativeSurface):
    """POST /v1/embed."""

    route = "/v1/embed"

    def __init__(self) -> None:
        self._envelope = Envelope(NativeEmbedRequest)

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        options = EmbedOptions(
            dimensions=request.dimensions,
            normalize=request.normalize,
            overflow=overflow_of(request.truncate, request.overflow),
            truncation_side=request.truncation_side,
            prompt_name=request.prompt_name,
            prompt=request.prompt,
            dtype=request.dtype or "float32",
            outputs=("dense",) if request.outputs is None else tuple(request.outputs),
            input_type=request.input_type,
            top_k=request.top_k,
            threshold=request.threshold or 0.0,
            pool_factor=request.pool_factor,
        )
        return Ask(
            model=request.model,
            input=request.input,
            input_format=body_format,
            options=options,
            renders=tuple(_render(output, request, reply_format) for output in options.outputs),
            input_tokenizer=request.input_tokenizer,
            request=options,
        )

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        return _msgpack_reply(answer) if reply_format == "msgpack" else _json_reply(answer)


def _render(output: Output, request: NativeEmbedRequest, reply_format: Format) -> Render:
    if reply_format == "msgpack":
        return _RAW
    is_base64 = output != "sparse" and (request.encoding == "base64" or request.dtype == "binary")
    return _BASE64 if is_base64 else _JSON


def _msgpack_reply(answer: Answer) -> bytes:
    options: EmbedOptions = answer.ask.request
    reply = EmbedReply(
        model=answer.card.id,
        num_tokens=answer.tokens_by_item,
        truncated=answer.truncated_by_item,
        times=times_of(answer),
        request_id=answer.request_id,
        profile=answer.replies[0].profile,
    )
    for place, output in enumerate(options.outputs):
        if output == "dense":
            reply.dtype = options.dtype
            reply.shape = answer.num_items, answer.replies[0].outputs[place].dimensions
            reply.data = answer.body(place)
            reply.scales = _scales(answer, place)
        elif output == "sparse":
            reply.sparse = _sparse_rows(answer, place)
        else:
            reply.dtype = options.dtype
            reply.multivector = MultiVectorRows(
                lengths=_lengths(answer, place),
                dimensions=answer.replies[0].outputs[place].dimensions,
                data=answer.body(place),
                scales=_scales(answer, place),
            )
    return encoders["msgpack"](reply)


def _sparse_rows(answer: Answer, place: int) -> SparseRows:
    parts = [reply.outputs[place] for reply in answer.replies]
    return SparseRows(
        lengths=_lengths(answer, place),
        indices=b"".join([part.body[: len(part.body) // 2] for part in parts]),
        values=b"".join([part.body[len(part.body) // 2 :] for part in parts]),
    )


def _scales(answer: Answer, place: int) -> list[float]:
    return [scale for reply in answer.replies for scale in reply.outputs[place].scales]


def _lengths(answer: Answer, place: int) -> list[int]:
    return [length for reply in answer.replies for length in reply.outputs[place].lengths]


def _json_reply(answer: Answer) -> bytes:
    options: EmbedOptions = answer.ask.request
    head: dict[str, Any] = {"model": answer.card.id}
    parts: list[bytes] = []
    tail = closing(answer)
    for place, output in enumerate(options.outputs):
        if output == "dense":
            head |= {"dtype": options.dtype, "dimensions": answer.replies[0].outputs[place].dimensions}
            if scales := _scales(answer, place):
                tail = {"scales": scales, **tail}
        if output == "multivector":
            head |= {"dtype": options.dtype, "multivector_dimensions": answer.replies[0].outputs[place].dimensions}
            if scales := _scales(answer, place):
                rows = iter(scales)
                by_text = [list(itertools.islice(rows, length)) for length in _lengths(answer, place)]
                tail = {"multivector_scales": by_text, **tail}
        name = b"embeddings" if output == "dense" else output.encode()
        parts.append(b'"%b":[%b]' % (name, answer.body(place, b",")))
    if answer.replies[0].profile:
        tail["profile"] = answer.replies[0].profile
    return b"%b,%b,%b" % (_encode(head)[:-1], b",".join(parts), _encode(tail)[1:])


def array_of(items: bytes, num_items: int, body_format: Format) -> bytes:
    """Encoded items as one array."""
    if body_format == "json":
        return b"[%b]" % items
    return b"\xdd" + num_items.to_bytes(4, "big") + items


def times_of(answer: Answer) -> dict[str, float]:
    """Milliseconds by stage."""
    times = answer.times
    return {
        "queue_ms": round(times.queue_s * 1e3, 3),
        "tokenize_ms": round(times.tokenize_s * 1e3, 3),
        "batch_ms": round(times.batch_s * 1e3, 3),
        "inference_ms": round(times.inference_s * 1e3, 3),
        "total_ms": round(answer.total_s * 1e3, 3),
    }
