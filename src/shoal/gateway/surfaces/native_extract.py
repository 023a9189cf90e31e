"""Shoal's own API to extract: JSON and MessagePack in and out. Translates and nothing else."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from shoal import types
from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import ModelName, Texts
from shoal.gateway.surfaces.native import NativeSurface, NativeUsage, array_of, closing, encoders
from shoal.types import Aggregation, ExtractOptions, Render

__all__ = ["NativeEntity", "NativeExtract", "NativeExtractReply", "NativeExtractRequest"]


class NativeExtractRequest(msgspec.Struct):
    """Texts to the entities in them; null means absent, unknown fields are ignored."""

    input: Texts = msgspec.field(default_factory=msgspec.Raw)
    model: ModelName = None
    labels: Annotated[list[str] | None, Meta(description="Only entities with one of these labels of the model.")] = None
    aggregation: Annotated[
        Aggregation | None,
        Meta(
            description="How tokens become entities, in transformers' words: none gives each token by itself, simple "
            "joins adjacent ones of one label, the others make words first, labelled by their first token, by the "
            "mean, or by the surest. Default simple."
        ),
    ] = None
    overflow: Annotated[
        types.Overflow | None,
        Meta(
            description="What becomes of a text that is too long: chunk reads it in windows (default), truncate, error."
        ),
    ] = None
    overlap_tokens: Annotated[
        int | None, Meta(description="Tokens that two windows share. Default: a quarter of a window.")
    ] = None
    threshold: Annotated[float | None, Meta(description="Only entities with a higher score.")] = None


class NativeEntity(msgspec.Struct):
    """A passage of a text that is something."""

    label: str
    text: str
    score: float
    start: Annotated[int, Meta(description="Place in the text as it was sent, in code points.")]
    end: int


class NativeExtractReply(msgspec.Struct):
    """The reply: entries in the order of the input."""

    model: str
    results: Annotated[list[list[NativeEntity]], Meta(description="Each text's entities, in the order of the text.")]
    num_tokens: Annotated[list[int], Meta(description="Tokens really run, an entry a text; windows overlap.")]
    truncated: Annotated[list[bool], Meta(description="Whether each text was cut.")]
    usage: NativeUsage
    times: Annotated[dict[str, float], Meta(description="queue_ms, tokenize_ms, batch_ms, inference_ms, total_ms.")]
    request_id: str


class NativeExtract(NativeSurface):
    """POST /v1/extract."""

    route = "/v1/extract"

    def __init__(self) -> None:
        self._envelope = Envelope(NativeExtractRequest)

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        options = ExtractOptions(
            labels=tuple(request.labels or ()),
            aggregation=request.aggregation or "simple",
            overflow=request.overflow,
            overlap_tokens=request.overlap_tokens,
            threshold=request.threshold or 0.0,
        )
        return Ask(
            model=request.model,
            input=request.input,
            input_format=body_format,
            options=options,
            renders=(Render(reply_format),),
        )

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        between = b"," if reply_format == "json" else b""
        results = array_of(answer.body(between=between), answer.num_items, reply_format)
        reply = {"model": answer.card.id, "results": msgspec.Raw(results), **closing(answer)}
        return encoders[reply_format](reply)
