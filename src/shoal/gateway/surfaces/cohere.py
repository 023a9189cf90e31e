"""Cohere's API, v1 and v2: embed and rerank. Translates and nothing else.

Base URL `/cohere`; what v2 has stands at the root too, where no other surface has those paths.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shoal.errors import InvalidRequest, ShoalError
from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import Dimensions, Documents, ModelName, Texts, TopN, overflow_of, required
from shoal.gateway.surfaces.ranking import as_object, check_top_n, rows
from shoal.types import DType, EmbedOptions, Render, RerankOptions

__all__ = [
    "CohereEmbed",
    "CohereEmbedReply",
    "CohereEmbedRequest",
    "CohereError",
    "CohereRerank",
    "CohereRerankReply",
    "CohereRerankRequest",
]

Version = Literal["1", "2"]
EmbeddingType = Literal["float", "int8", "uint8", "binary", "ubinary", "base64"]

_UNIT_DOCUMENTS = 100
"""So many documents are one search unit."""


class CohereEmbedRequest(msgspec.Struct):
    """A request as Cohere defines it; null means absent, unknown fields are ignored."""

    texts: Texts = msgspec.field(default_factory=msgspec.Raw)
    model: ModelName = None
    input_type: Annotated[
        Literal["search_document", "search_query", "classification", "clustering", "image"] | None,
        Meta(description="The first two take the model's own prompt for documents or queries, if it has one."),
    ] = None
    embedding_types: Annotated[
        list[EmbeddingType] | None,
        Meta(description="int8 and uint8 need a calibration that models here do not have: refused."),
    ] = None
    output_dimension: Dimensions = None
    truncate: Annotated[
        Literal["NONE", "START", "END"] | None,
        Meta(description="Which end of a text that is too long is dropped; NONE refuses it."),
    ] = None
    max_tokens: Annotated[int | None, Meta(description="Not applied; meta.warnings says so.")] = None
    images: Annotated[list[Any] | None, Meta(description="Refused.")] = None
    inputs: Annotated[list[Any] | None, Meta(description="Refused: send texts.")] = None


class CohereRerankRequest(msgspec.Struct):
    """A request as Cohere defines it; null means absent, unknown fields are ignored."""

    documents: Documents = msgspec.field(default_factory=msgspec.Raw)
    query: Annotated[str | None, Meta(description="What the documents are ranked for. It is never cut.")] = None
    model: ModelName = None
    top_n: TopN = None
    return_documents: Annotated[bool | None, Meta(description="Give each result its document's text.")] = None
    rank_fields: Annotated[list[str] | None, Meta(description="Only ['text'].")] = None
    max_tokens_per_doc: Annotated[int | None, Meta(description="Not applied; meta.warnings says so.")] = None
    max_chunks_per_doc: Annotated[int | None, Meta(description="Not applied; meta.warnings says so.")] = None


class CohereVersion(msgspec.Struct):
    """Which API answered."""

    version: Version


class CohereUnits(msgspec.Struct, omit_defaults=True):
    """What Cohere would count."""

    input_tokens: int = 0
    search_units: int = 0


class CohereMeta(msgspec.Struct, omit_defaults=True):
    """About the reply: tokens really run, and what of the request was not applied."""

    api_version: CohereVersion
    billed_units: CohereUnits
    tokens: CohereUnits
    warnings: list[str] = []


class CohereVectors(msgspec.Struct):
    """Vectors by type, each in the order of the texts: binary and ubinary are packed bits, signed and unsigned."""

    floats: list[list[float]] | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="float")
    binary: list[list[int]] | msgspec.UnsetType = msgspec.UNSET
    ubinary: list[list[int]] | msgspec.UnsetType = msgspec.UNSET
    base64: list[str] | msgspec.UnsetType = msgspec.UNSET


class CohereEmbedReply(msgspec.Struct):
    """The reply; v1 without embedding_types has a list of vectors for embeddings."""

    id: str
    response_type: Literal["embeddings_by_type", "embeddings_floats"]
    embeddings: CohereVectors | list[list[float]]
    texts: list[str]
    meta: CohereMeta


class CohereDocument(msgspec.Struct):
    """A document as it was sent."""

    text: str


class CohereRank(msgspec.Struct, omit_defaults=True):
    """One document."""

    index: Annotated[int, Meta(description="Place of the document in documents.")]
    relevance_score: float
    document: CohereDocument | msgspec.UnsetType = msgspec.UNSET


class CohereRerankReply(msgspec.Struct):
    """The reply: most relevant first."""

    id: str
    results: list[CohereRank]
    meta: CohereMeta


class CohereError(msgspec.Struct, omit_defaults=True):
    """Every answer that is no success."""

    message: str
    id: str = ""


_encode = msgspec.json.Encoder().encode
_JSON, _BASE64, _RAW = Render("json"), Render("base64"), Render("raw")
_TYPES: dict[str, tuple[DType, Render]] = {
    "float": ("float32", _JSON),
    "base64": ("float32", _BASE64),
    "ubinary": ("binary", _JSON),
    "binary": ("signed_binary", _JSON),
}
_INPUT_TYPES: dict[str | None, Literal["query", "document"]] = {
    "search_query": "query",
    "search_document": "document",
}
_SIDES: dict[str | None, Literal["left", "right"]] = {"START": "left", "END": "right"}


class _Cohere:
    formats: tuple[Format, ...] = ("json",)
    statuses: dict[str, int] = {}
    names = {"dimensions": "output_dimension", "truncate: true": "truncate: END"}

    def error(self, error: ShoalError, request_id: str, reply_format: Format) -> bytes:
        return _encode(CohereError(str(error), request_id))


class CohereEmbed(_Cohere):
    """POST /cohere/v1/embed and /cohere/v2/embed."""

    names = _Cohere.names | {"input": "texts"}

    def __init__(self, version: Version) -> None:
        self.route = f"/cohere/v{version}/embed"
        self._version = version
        self._envelope = Envelope(CohereEmbedRequest, "texts")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        types = request.embedding_types or ["float"]
        _check_embed(request, types)
        dtype, *others = [_TYPES[kind][0] for kind in types]
        return Ask(
            model=request.model,
            input=request.texts,
            input_format=body_format,
            options=EmbedOptions(
                dimensions=request.output_dimension,
                overflow=overflow_of(None if request.truncate is None else request.truncate != "NONE"),
                truncation_side=_SIDES.get(request.truncate),
                input_type=_INPUT_TYPES.get(request.input_type),
                dtype=dtype,
                also_dtypes=tuple(others),
            ),
            renders=tuple(_TYPES[kind][1] for kind in types),
            request=request,
        )

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        request: CohereEmbedRequest = answer.ask.request
        is_plain = self._version == "1" and request.embedding_types is None
        warnings = _warnings(max_tokens=request.max_tokens)
        meta = _meta(self._version, CohereUnits(input_tokens=answer.num_tokens), answer, warnings)
        vectors = [b"[%b]" % answer.body(place, b",") for place in range(len(answer.ask.renders))]
        types = request.embedding_types or ["float"]
        by_type = b"{%b}" % b",".join(b'"%b":%b' % (kind.encode(), v) for kind, v in zip(types, vectors, strict=True))
        head = {"id": answer.request_id, "response_type": "embeddings_floats" if is_plain else "embeddings_by_type"}
        return _encode(
            head
            | {
                "embeddings": msgspec.Raw(vectors[0] if is_plain else by_type),
                "texts": msgspec.Raw(answer.items.pack(0, answer.num_items)),
                "meta": meta,
            }
        )


class CohereRerank(_Cohere):
    """POST /cohere/v1/rerank and /cohere/v2/rerank."""

    names = _Cohere.names | {"input": "documents"}

    def __init__(self, version: Version) -> None:
        self.route = f"/cohere/v{version}/rerank"
        self._version = version
        self._envelope = Envelope(CohereRerankRequest, "documents")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        query = required(request.query, "query")
        check_top_n(request.top_n, "top_n")
        if request.rank_fields not in (None, ["text"]):
            raise InvalidRequest("rank_fields may only be ['text'].", param="rank_fields")
        return Ask(
            model=request.model,
            input=request.documents,
            input_format=body_format,
            options=RerankOptions(query),
            renders=(_RAW,),
            are_documents=True,
            request=request,
        )

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        request: CohereRerankRequest = answer.ask.request
        results = rows(answer, request.top_n, shown=as_object if request.return_documents else None)
        warnings = _warnings(
            max_tokens_per_doc=request.max_tokens_per_doc, max_chunks_per_doc=request.max_chunks_per_doc
        )
        if (method := answer.card.rerank_method) != "cross_encoder":
            warnings.append(f"{answer.card.id} only embeds: query and documents were compared by {method}.")
        units = CohereUnits(search_units=math.ceil(answer.num_items / _UNIT_DOCUMENTS))
        meta = _meta(self._version, units, answer, warnings)
        return _encode({"id": answer.request_id, "results": results, "meta": meta})


def _check_embed(request: CohereEmbedRequest, types: list[EmbeddingType]) -> None:
    if request.images or request.inputs or request.input_type == "image":
        field = "images" if request.images else "inputs" if request.inputs else "input_type"
        raise InvalidRequest(f"{field}: only texts are embedded here.", param=field, hint="Send texts.")
    if len(set(types)) < len(types):
        raise InvalidRequest("embedding_types names a type twice.", param="embedding_types")
    for kind in types:
        if kind not in _TYPES:
            raise InvalidRequest(
                f"embedding_types holds {kind}, which needs a calibration that no model here has.",
                param="embedding_types",
                hint='Allowed: float, binary, ubinary, base64; /v1/embed with "dtype": "int8" gives a scale a vector.',
            )


def _warnings(**fields: int | None) -> list[str]:
    return [
        f"{name} is not applied: texts are cut only where they are too long for the model."
        for name, value in fields.items()
        if value is not None
    ]


def _meta(version: Version, units: CohereUnits, answer: Answer, warnings: list[str]) -> CohereMeta:
    return CohereMeta(CohereVersion(version), units, CohereUnits(input_tokens=answer.num_tokens), warnings)
