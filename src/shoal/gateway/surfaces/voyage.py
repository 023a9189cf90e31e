"""Voyage AI's API: embed and rerank. Base URL `/voyage/v1`. Translates and nothing else."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from shoal.errors import InvalidRequest, ShoalError
from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import Dimensions, Documents, ModelName, Texts, TopN, overflow_of, required
from shoal.gateway.surfaces.lists import BASE64, NUMBERS, ListedVector, vectors
from shoal.gateway.surfaces.ranking import as_it_is, check_top_n, rows
from shoal.types import DType, EmbedOptions, Render, RerankOptions

__all__ = [
    "VoyageEmbed",
    "VoyageEmbedRequest",
    "VoyageError",
    "VoyageRanking",
    "VoyageRerank",
    "VoyageRerankRequest",
    "VoyageVectors",
]

Truncation = Annotated[
    bool | None, Meta(description="true cuts a text that is too long, false refuses it; absent: as the server is set.")
]


class VoyageEmbedRequest(msgspec.Struct):
    """A request as Voyage defines it; null means absent, unknown fields are ignored."""

    input: Texts = msgspec.field(default_factory=msgspec.Raw)
    model: ModelName = None
    input_type: Annotated[
        Literal["query", "document"] | None,
        Meta(description="What the texts are: takes the model's prompt of that name, if it has one."),
    ] = None
    truncation: Truncation = None
    output_dimension: Dimensions = None
    output_dtype: Annotated[
        Literal["float", "int8", "uint8", "binary", "ubinary"] | None,
        Meta(description="int8 and uint8 need a calibration that models here do not have: refused."),
    ] = None
    encoding_format: Annotated[Literal["base64"] | None, Meta(description="base64 of each vector's bytes.")] = None


class VoyageRerankRequest(msgspec.Struct):
    """A request as Voyage defines it; null means absent, unknown fields are ignored."""

    documents: Documents = msgspec.field(default_factory=msgspec.Raw)
    query: Annotated[str | None, Meta(description="What the documents are ranked for. It is never cut.")] = None
    model: ModelName = None
    top_k: TopN = None
    return_documents: Annotated[bool | None, Meta(description="Give each result its document's text.")] = None
    truncation: Truncation = None


class VoyageUsage(msgspec.Struct):
    """Tokens really run, special tokens included, after truncation."""

    total_tokens: int


class VoyageVectors(msgspec.Struct):
    """The reply: vectors in the order of the input."""

    object: Literal["list"]
    data: list[ListedVector]
    model: str
    usage: VoyageUsage


class VoyageRank(msgspec.Struct):
    """One document."""

    index: Annotated[int, Meta(description="Place of the document in documents.")]
    relevance_score: float
    document: str | msgspec.UnsetType = msgspec.UNSET


class VoyageRanking(msgspec.Struct):
    """The reply: most relevant first."""

    object: Literal["list"]
    data: list[VoyageRank]
    model: str
    usage: VoyageUsage


class VoyageError(msgspec.Struct):
    """Every answer that is no success."""

    detail: str


_encode = msgspec.json.Encoder().encode
_DTYPES: dict[str, DType] = {"float": "float32", "binary": "signed_binary", "ubinary": "binary"}


class _Voyage:
    formats: tuple[Format, ...] = ("json",)
    statuses: dict[str, int] = {}
    names = {"dimensions": "output_dimension", "truncate": "truncation"}

    def error(self, error: ShoalError, request_id: str, reply_format: Format) -> bytes:
        return _encode(VoyageError(str(error)))


class VoyageEmbed(_Voyage):
    """POST /voyage/v1/embeddings."""

    route = "/voyage/v1/embeddings"

    def __init__(self) -> None:
        self._envelope = Envelope(VoyageEmbedRequest)

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        kind = request.output_dtype or "float"
        if kind not in _DTYPES:
            raise InvalidRequest(
                f"output_dtype is {kind}, which needs a calibration that no model here has.",
                param="output_dtype",
                hint='Allowed: float, binary, ubinary; /v1/embed with "dtype": "int8" gives a scale a vector.',
            )
        return Ask(
            model=request.model,
            input=request.input,
            input_format=body_format,
            options=EmbedOptions(
                dimensions=request.output_dimension,
                overflow=overflow_of(request.truncation),
                input_type=request.input_type,
                dtype=_DTYPES[kind],
            ),
            renders=(BASE64 if request.encoding_format else NUMBERS,),
        )

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        return vectors(answer, _encode(VoyageUsage(answer.num_tokens)))


class VoyageRerank(_Voyage):
    """POST /voyage/v1/rerank."""

    route = "/voyage/v1/rerank"
    names = _Voyage.names | {"input": "documents"}

    def __init__(self) -> None:
        self._envelope = Envelope(VoyageRerankRequest, "documents")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        query = required(request.query, "query")
        check_top_n(request.top_k, "top_k")
        return Ask(
            model=request.model,
            input=request.documents,
            input_format=body_format,
            options=RerankOptions(query, truncate=request.truncation),
            renders=(Render("raw"),),
            are_documents=True,
            request=request,
        )

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        request: VoyageRerankRequest = answer.ask.request
        shown = as_it_is if request.return_documents else None
        ranks = rows(answer, request.top_k, shown=shown)
        usage = VoyageUsage(answer.num_tokens)
        return _encode({"object": "list", "data": ranks, "model": answer.card.id, "usage": usage})
