"""Shoal's own API to rerank: JSON and MessagePack in and out. Translates, sorts and cuts; nothing else."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import Documents, TopN, Truncate, TruncationSide, WholeOrCut, required, truncate_of
from shoal.gateway.surfaces.native import NativeSurface, NativeUsage, closing, encoders
from shoal.gateway.surfaces.ranking import as_object, check_top_n, rows
from shoal.types import Render, RerankOptions

__all__ = ["NativeRerank", "NativeRerankReply", "NativeRerankRequest", "NativeRerankResult"]


class NativeRerankRequest(msgspec.Struct):
    """Documents by their relevance to a query; null means absent, unknown fields are ignored."""

    documents: Documents = msgspec.field(default_factory=msgspec.Raw)
    query: Annotated[str | None, Meta(description="What the documents are ranked for. It is never cut.")] = None
    model: Annotated[str | None, Meta(description="Id or alias of a model, as /v1/models lists them.")] = None
    top_n: TopN = None
    return_documents: Annotated[bool | None, Meta(description="Give each result its document's text.")] = None
    raw_scores: Annotated[
        bool | None, Meta(description="The model's logits instead of what it declares to make of them.")
    ] = None
    truncate: Truncate = None
    overflow: WholeOrCut = None
    truncation_side: TruncationSide = None
    instruction: Annotated[
        str | None,
        Meta(description="What counts as relevant, for models that are told; absent: as the model's own files say."),
    ] = None


class NativeDocument(msgspec.Struct):
    """A document as it was sent."""

    text: str


class NativeRerankResult(msgspec.Struct):
    """One document."""

    index: Annotated[int, Meta(description="Place of the document in documents.")]
    relevance_score: float
    document: NativeDocument | msgspec.UnsetType = msgspec.UNSET


class NativeRerankReply(msgspec.Struct):
    """The reply: most relevant first."""

    model: str
    method: Annotated[
        Literal["cross_encoder", "cosine", "maxsim"],
        Meta(
            description="Whether the model read query and document together, or embedded them apart and compared "
            "vectors of whole texts (cosine) or of tokens (maxsim)."
        ),
    ]
    results: list[NativeRerankResult]
    num_tokens: Annotated[list[int], Meta(description="Tokens really run, an entry a document, in their order.")]
    truncated: Annotated[list[bool], Meta(description="Whether each document was cut, in their order.")]
    usage: NativeUsage
    times: Annotated[dict[str, float], Meta(description="queue_ms, tokenize_ms, batch_ms, inference_ms, total_ms.")]
    request_id: str


class NativeRerank(NativeSurface):
    """POST /v1/rerank."""

    route = "/v1/rerank"
    names = {"input": "documents"}

    def __init__(self) -> None:
        self._envelope = Envelope(NativeRerankRequest, "documents")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        query = required(request.query, "query")
        check_top_n(request.top_n, "top_n")
        return Ask(
            model=request.model,
            input=request.documents,
            input_format=body_format,
            options=RerankOptions(
                query,
                bool(request.raw_scores),
                truncate_of(request.truncate, request.overflow),
                request.truncation_side,
                request.instruction,
            ),
            renders=(Render("raw"),),
            are_documents=True,
            request=request,
        )

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        request: NativeRerankRequest = answer.ask.request
        shown = as_object if request.return_documents else None
        reply = {
            "model": answer.card.id,
            "method": answer.card.rerank_method,
            "results": rows(answer, request.top_n, reply_format=reply_format, shown=shown),
            **closing(answer),
        }
        return encoders[reply_format](reply)
