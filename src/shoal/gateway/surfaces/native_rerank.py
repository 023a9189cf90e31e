"""Shoal's own API to rerank: JSON and MessagePack in and out. Translates, sorts and cuts; nothing else."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shoal.errors import InvalidRequest, ShoalError
from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import Documents, Truncate
from shoal.gateway.surfaces.native import NativeUsage, encoders, native_error, times_of
from shoal.types import Render, RerankOptions

__all__ = ["NativeRerank", "NativeRerankReply", "NativeRerankRequest", "NativeRerankResult", "ranked"]


class NativeRerankRequest(msgspec.Struct):
    """Documents by their relevance to a query; null means absent, unknown fields are ignored."""

    documents: Documents = msgspec.field(default_factory=msgspec.Raw)
    query: Annotated[str | None, Meta(description="What the documents are ranked for. It is never cut.")] = None
    model: Annotated[str | None, Meta(description="Id or alias of a model, as /v1/models lists them.")] = None
    top_n: Annotated[int | None, Meta(description="Return only so many results, the best.")] = None
    return_documents: Annotated[bool | None, Meta(description="Give each result its document's text.")] = None
    raw_scores: Annotated[
        bool | None, Meta(description="The model's logits instead of what it declares to make of them.")
    ] = None
    truncate: Truncate = None


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
        Literal["cross_encoder", "cosine"],
        Meta(description="Whether the model read query and document together, or embedded them apart."),
    ]
    results: list[NativeRerankResult]
    num_tokens: Annotated[list[int], Meta(description="Tokens really run, an entry a document, in their order.")]
    truncated: Annotated[list[bool], Meta(description="Whether each document was cut, in their order.")]
    usage: NativeUsage
    times: Annotated[dict[str, float], Meta(description="queue_ms, tokenize_ms, batch_ms, inference_ms, total_ms.")]
    request_id: str


class NativeRerank:
    """POST /v1/rerank."""

    route = "/v1/rerank"
    formats: tuple[Format, ...] = ("json", "msgpack")
    statuses: dict[str, int] = {}

    def __init__(self) -> None:
        self._envelope = Envelope(NativeRerankRequest, "documents")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        if request.query is None:
            raise InvalidRequest("The field query is missing.", param="query")
        if request.top_n is not None and request.top_n < 1:
            raise InvalidRequest(f"top_n is {request.top_n}; it must be at least 1.", param="top_n")
        return Ask(
            model=request.model,
            input=request.documents,
            input_format=body_format,
            options=RerankOptions(request.query, bool(request.raw_scores), request.truncate),
            renders=(Render("raw"),),
            field="documents",
            are_documents=True,
            request=request,
        )

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        request: NativeRerankRequest = answer.ask.request
        results: list[dict[str, Any]] = [
            {"index": index, "relevance_score": score} for index, score in ranked(answer, request.top_n)
        ]
        if request.return_documents:
            for result in results:
                result["document"] = {"text": answer.items.value(result["index"], reply_format)}
        reply: dict[str, Any] = {
            "model": answer.card.id,
            "method": answer.card.rerank_method,
            "results": results,
            "num_tokens": answer.tokens_by_item,
            "truncated": answer.truncated_by_item,
            "usage": {"num_tokens": answer.num_tokens},
            "times": times_of(answer),
            "request_id": answer.request_id,
        }
        return encoders[reply_format](reply)

    def error(self, error: ShoalError, request_id: str, reply_format: Format) -> bytes:
        return native_error(error, request_id, reply_format)


def ranked(answer: Answer, top_n: int | None) -> list[tuple[int, float]]:
    """(place in the request, relevance) of the best documents, best first; equal ones in the request's order."""
    scores = memoryview(answer.body()).cast("f").tolist()
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    return [(index, scores[index]) for index in order[:top_n]]
