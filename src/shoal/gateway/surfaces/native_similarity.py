"""Shoal's own API to compare texts with one: JSON and MessagePack in and out. Translates and nothing else."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import (
    ModelName,
    Prompt,
    PromptName,
    Texts,
    Truncate,
    TruncationSide,
    WholeOrCut,
    required,
    truncate_of,
)
from shoal.gateway.surfaces.native import NativeSurface, NativeUsage, closing, encoders
from shoal.gateway.surfaces.ranking import scores_of
from shoal.types import Render, SimilarityOptions

__all__ = ["NativeSimilarity", "NativeSimilarityReply", "NativeSimilarityRequest"]


class NativeSimilarityRequest(msgspec.Struct):
    """Texts by how alike they are to one; null means absent, unknown fields are ignored."""

    input: Texts = msgspec.field(default_factory=msgspec.Raw)
    source: Annotated[str | None, Meta(description="What the texts are compared to; embedded as they are.")] = None
    model: ModelName = None
    truncate: Truncate = None
    overflow: WholeOrCut = None
    truncation_side: TruncationSide = None
    prompt_name: PromptName = None
    prompt: Prompt = None


class NativeSimilarityReply(msgspec.Struct):
    """The reply: entries in the order of the input. The source counts in neither num_tokens nor usage."""

    model: str
    function: Annotated[
        Literal["cosine", "dot", "euclidean", "manhattan"],
        Meta(description="As the model declares, cosine if it does not; distances are negative."),
    ]
    scores: Annotated[list[float], Meta(description="How alike each text is to the source; more is more alike.")]
    num_tokens: Annotated[list[int], Meta(description="Tokens really run, an entry a text.")]
    truncated: Annotated[list[bool], Meta(description="Whether each text was cut.")]
    usage: NativeUsage
    times: Annotated[dict[str, float], Meta(description="queue_ms, tokenize_ms, batch_ms, inference_ms, total_ms.")]
    request_id: str


class NativeSimilarity(NativeSurface):
    """POST /v1/similarity."""

    route = "/v1/similarity"

    def __init__(self) -> None:
        self._envelope = Envelope(NativeSimilarityRequest)

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        return Ask(
            model=request.model,
            input=request.input,
            input_format=body_format,
            options=SimilarityOptions(
                source=required(request.source, "source"),
                truncate=truncate_of(request.truncate, request.overflow),
                truncation_side=request.truncation_side,
                prompt_name=request.prompt_name,
                prompt=request.prompt,
            ),
            renders=(Render("raw"),),
        )

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        card = answer.card
        reply = {"model": card.id, "function": card.similarity, "scores": scores_of(answer), **closing(answer)}
        return encoders[reply_format](reply)
