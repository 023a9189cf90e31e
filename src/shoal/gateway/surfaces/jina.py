"""Jina AI's API: embed and rerank. Base URL `/jina/v1`. Translates and nothing else."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from shoal.errors import InvalidRequest, ShoalError
from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import Dimensions, Documents, ModelName, Texts, TopN, Truncate, overflow_of, required
from shoal.gateway.surfaces.lists import BASE64, NUMBERS, ListedVector, vectors
from shoal.gateway.surfaces.ranking import as_object, check_top_n, rows
from shoal.types import DType, EmbedOptions, Render, RerankOptions

__all__ = [
    "JinaEmbed",
    "JinaEmbedRequest",
    "JinaError",
    "JinaRanking",
    "JinaRerank",
    "JinaRerankRequest",
    "JinaVectors",
]


class JinaEmbedRequest(msgspec.Struct):
    """A request as Jina defines it; null means absent, unknown fields are ignored."""

    input: Texts = msgspec.field(default_factory=msgspec.Raw)
    model: ModelName = None
    task: Annotated[
        str | None,
        Meta(
            description="retrieval.query and retrieval.passage take the model's own prompt for queries or documents, "
            "if it has one; others change nothing."
        ),
    ] = None
    embedding_type: Annotated[
        Literal["float", "base64", "binary", "ubinary"] | None,
        Meta(description="binary and ubinary are packed bits, signed and unsigned; base64 is of float32."),
    ] = None
    dimensions: Dimensions = None
    normalized: Annotated[bool | None, Meta(description="L2-normalise; absent: as the model's own modules say.")] = None
    truncate: Truncate = None
    late_chunking: Annotated[bool | None, Meta(description="true is refused.")] = None
    return_multivector: Annotated[bool | None, Meta(description="true is refused.")] = None


class JinaRerankRequest(msgspec.Struct):
    """A request as Jina defines it; null means absent, unknown fields are ignored."""

    documents: Documents = msgspec.field(default_factory=msgspec.Raw)
    query: Annotated[str | None, Meta(description="What the documents are ranked for. It is never cut.")] = None
    model: ModelName = None
    top_n: TopN = None
    return_documents: Annotated[
        bool | None, Meta(description="Give each result its document's text. Default true.")
    ] = None
    truncate: Truncate = None


class JinaUsage(msgspec.Struct):
    """Tokens really run, special tokens included, after truncation."""

    total_tokens: int
    prompt_tokens: int


class JinaVectors(msgspec.Struct):
    """The reply: vectors in the order of the input."""

    object: Literal["list"]
    data: list[ListedVector]
    model: str
    usage: JinaUsage


class JinaDocument(msgspec.Struct):
    """A document as it was sent."""

    text: str


class JinaRank(msgspec.Struct):
    """One document."""

    index: Annotated[int, Meta(description="Place of the document in documents.")]
    relevance_score: float
    document: JinaDocument | msgspec.UnsetType = msgspec.UNSET


class JinaRanking(msgspec.Struct):
    """The reply: most relevant first."""

    object: Literal["list"]
    results: list[JinaRank]
    model: str
    usage: JinaUsage


class JinaError(msgspec.Struct):
    """Every answer that is no success."""

    detail: str


_encode = msgspec.json.Encoder().encode
_TYPES: dict[str, tuple[DType, Render]] = {
    "float": ("float32", NUMBERS),
    "base64": ("float32", BASE64),
    "binary": ("signed_binary", NUMBERS),
    "ubinary": ("binary", NUMBERS),
}
_TASKS: dict[str | None, Literal["query", "document"]] = {
    "retrieval.query": "query",
    "retrieval.passage": "document",
}


class _Jina:
    formats: tuple[Format, ...] = ("json",)
    statuses: dict[str, int] = {}
    names = {"normalize": "normalized"}

    def error(self, error: ShoalError, request_id: str, reply_format: Format) -> bytes:
        return _encode(JinaError(str(error)))


class JinaEmbed(_Jina):
    """POST /jina/v1/embeddings."""

    route = "/jina/v1/embeddings"

    def __init__(self) -> None:
        self._envelope = Envelope(JinaEmbedRequest)

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        for field in ("late_chunking", "return_multivector"):
            if getattr(request, field):
                raise InvalidRequest(f"{field} is not offered here.", param=field)
        dtype, render = _TYPES[request.embedding_type or "float"]
        start = bytes(memoryview(request.input)[:64])
        return Ask(
            model=request.model,
            input=request.input,
            input_format=body_format,
            options=EmbedOptions(
                dimensions=request.dimensions,
                normalize=request.normalized,
                overflow=overflow_of(request.truncate),
                input_type=_TASKS.get(request.task),
                dtype=dtype,
            ),
            renders=(render,),
            are_documents=start[:1] == b"[" and start[1:].lstrip()[:1] == b"{",
        )

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        return vectors(answer, _encode(JinaUsage(answer.num_tokens, answer.num_tokens)))


class JinaRerank(_Jina):
    """POST /jina/v1/rerank."""

    route = "/jina/v1/rerank"
    names = {"input": "documents"}

    def __init__(self) -> None:
        self._envelope = Envelope(JinaRerankRequest, "documents")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        query = required(request.query, "query")
        check_top_n(request.top_n, "top_n")
        return Ask(
            model=request.model,
            input=request.documents,
            input_format=body_format,
            options=RerankOptions(query, truncate=request.truncate),
            renders=(Render("raw"),),
            are_documents=True,
            request=request,
        )

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        request: JinaRerankRequest = answer.ask.request
        shown = None if request.return_documents is False else as_object
        ranks = rows(answer, request.top_n, shown=shown)
        usage = JinaUsage(answer.num_tokens, answer.num_tokens)
        return _encode({"object": "list", "results": ranks, "model": answer.card.id, "usage": usage})
