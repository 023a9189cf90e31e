"""The API's description, made from the structs that requests are really decoded with."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

import shoal
from shoal.gateway.openapi_surfaces import ROWS, Row
from shoal.gateway.surfaces.native import NativeEmbedRequest, NativeError, NativeReply
from shoal.gateway.surfaces.native_classify import NativeClassifyReply, NativeClassifyRequest
from shoal.gateway.surfaces.native_extract import NativeExtractReply, NativeExtractRequest
from shoal.gateway.surfaces.native_rerank import NativeRerankReply, NativeRerankRequest
from shoal.gateway.surfaces.native_similarity import NativeSimilarityReply, NativeSimilarityRequest
from shoal.gateway.surfaces.native_tokenize import NativeTokenizeReply, NativeTokenizeRequest
from shoal.gateway.surfaces.openai import OpenAIEmbedRequest, OpenAIError, OpenAIList
from shoal.gateway.surfaces.tei import TeiInfo
from shoal.types import EmbedReply, ModelCard, Priority

__all__ = ["describe"]

_REF = "#/components/schemas/{name}"


class ModelEntry(ModelCard, frozen=True):
    """A model's card, with OpenAI's fields and its state: ready, loading, failed, or cold (loads on demand)."""

    object: str = "model"
    created: int = 0
    owned_by: str = ""
    state: str = ""


class ModelList(msgspec.Struct):
    """The models served."""

    object: str
    data: list[ModelEntry]


_STRUCTS = (
    NativeEmbedRequest,
    NativeReply,
    EmbedReply,
    NativeRerankRequest,
    NativeRerankReply,
    NativeClassifyRequest,
    NativeClassifyReply,
    NativeExtractRequest,
    NativeExtractReply,
    NativeSimilarityRequest,
    NativeSimilarityReply,
    NativeTokenizeRequest,
    NativeTokenizeReply,
    NativeError,
    OpenAIEmbedRequest,
    OpenAIList,
    OpenAIError,
    ModelEntry,
    ModelList,
    TeiInfo,
    *dict.fromkeys(struct for row in ROWS for struct in (row.request, row.error)),
)

_TAKE_INPUT = (
    "NativeEmbedRequest",
    "NativeClassifyRequest",
    "NativeExtractRequest",
    "NativeTokenizeRequest",
    "OpenAIEmbedRequest",
)

_ERRORS = {
    400: "The request must change; `param` names the field.",
    401: "There are API keys, and none was sent, or one that is not right.",
    403: "The API key does not allow this operation or model.",
    404: "No such model; the message names near ones.",
    413: "Body, item or list beyond a limit.",
    415: "Neither of the formats that this route takes.",
    429: "More is queued than can be done in time, or the key's quota is used up; see Retry-After.",
    500: "A fault of the server.",
    503: "Loading or starting; see Retry-After.",
    504: "The time allowed ran out.",
}

_REPLY_HEADERS = {
    "X-Request-Id": ("The id sent, or a new one.", "string"),
    "Server-Timing": ("Milliseconds by stage: queue, tokenize, batch, inference, total.", "string"),
    "X-Shoal-Truncated": ("How many texts were cut; absent where none was.", "integer"),
}

_PARAMETERS = [
    ("X-Request-Id", "Kept if it is 1 to 80 of A-Z a-z 0-9 . _ : -", {"type": "string"}),
    ("X-Shoal-Priority", "The lane to wait in.", {"type": "string", "enum": list(get_args(Priority))}),
    ("X-Shoal-Timeout", "Seconds that the request may take.", {"type": "number", "exclusiveMinimum": 0}),
]

_RERANK_EXAMPLE = {
    "model": "cross-encoder/ms-marco-MiniLM-L6-v2",
    "query": "What is the capital of France?",
    "documents": ["Paris is the capital of France.", "Berlin is the capital of Germany."],
}
_EXAMPLE = {"model": "sentence-transformers/all-MiniLM-L6-v2", "input": ["hello shoal", "another text"]}


def describe() -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    kinds = [*_STRUCTS, *(row.reply for row in ROWS)]
    shapes, schemas = msgspec.json.schema_components(kinds, ref_template=_REF)
    replies = {row.path: schema for row, schema in zip(ROWS, shapes[len(_STRUCTS) :], strict=True)}
    required: dict[str, tuple[str, ...]] = {row.request.__name__: row.required for row in ROWS}
    required |= dict.fromkeys(_TAKE_INPUT, ("model", "input"))
    required |= {
        "NativeRerankRequest": ("model", "query", "documents"),
        "NativeSimilarityRequest": ("model", "source", "input"),
        "TeiSentences": ("source_sentence", "sentences"),
    }
    for name, fields in required.items():
        schemas[name]["required"] = list(fields)
        # The decoder gives them defaults only so that a missing one is reported in our own words.
        for field in fields:
            schemas[name]["properties"][field] = _without_null(schemas[name]["properties"][field])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Shoal",
            "version": shoal.__version__,
            "summary": "A fleet of small open models behind one URL.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/v1/embeddings": {"post": _openai_embeddings()},
            "/v1/embed": {"post": _native_embed()},
            "/v1/rerank": {"post": _native_rerank()},
            "/v1/classify": {"post": _native_classify()},
            "/v1/extract": {"post": _native_extract()},
            "/v1/similarity": {"post": _native_similarity()},
            "/v1/tokenize": {"post": _native_tokenize()},
            **{row.path: {"post": _compatible(row, replies[row.path])} for row in ROWS},
            "/v1/models": {"get": _page("Models served", "models", "ModelList")},
            "/v1/models/{id}": {"get": _model("One model", "model", "ModelEntry")},
            "/healthz": {"get": _page("Whether the process lives", "health")},
            "/readyz": {"get": _readiness()},
            "/tei/{id}/info": {"get": _model("One model, in TEI's shape", "tei_info", "TeiInfo")},
            "/tei/health": {"get": _page("Whether requests would be answered, as /readyz", "tei_health")},
            "/metrics": {"get": _page("Metrics in Prometheus' text format", "metrics", media_type="text/plain")},
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "If the server has keys."}},
        },
        "security": [{"key": []}, {}],
    }


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field that has to be there."""
    kept = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    choices = [choice for choice in schema.get("anyOf", []) if choice != {"type": "null"}]
    return kept | (choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {})


def _openai_embeddings() -> dict[str, Any]:
    return {
        "operationId": "openai_embeddings",
        "summary": "Embed texts, in OpenAI's shape",
        "description": "What OpenAI's clients speak. Fields unknown are ignored, null is as absent.",
        "parameters": _parameters(),
        "requestBody": {"required": True, "content": {"application/json": _body("OpenAIEmbedRequest", _EXAMPLE)}},
        "responses": {"200": _success({"application/json": _body("OpenAIList")}), **_failures("OpenAIError")},
    }


def _compatible(row: Row, reply: dict[str, Any]) -> dict[str, Any]:
    body = _body(row.request.__name__, row.example)
    return {
        "operationId": "post" + row.path.replace("/", "_"),
        "summary": row.summary,
        "description": "Fields unknown are ignored, null is as absent.",
        "parameters": _parameters(),
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": {
            "200": _success({"application/json": {"schema": reply}}),
            **_failures(row.error.__name__, statuses=_ERRORS | row.statuses),
        },
    }


def _native_embed() -> dict[str, Any]:
    return _native(
        "embed",
        "Embed texts",
        "In MessagePack the vectors are one matrix of raw little-endian bytes.",
        request="NativeEmbedRequest",
        reply="NativeReply",
        msgpack_reply="EmbedReply",
        example=_EXAMPLE,
    )


def _native_rerank() -> dict[str, Any]:
    return _native(
        "rerank",
        "Rank documents for a query",
        "A cross-encoder reads query and document together. A model that only embeds compares them by cosine, or "
        "token by token (maxsim), and the reply says so in method. Documents are cut where they are too long, the "
        "query never is.",
        request="NativeRerankRequest",
        reply="NativeRerankReply",
        example=_RERANK_EXAMPLE,
    )


def _native_classify() -> dict[str, Any]:
    return _native(
        "classify",
        "Label texts",
        "Labels are the model's own, or with an NLI model those of the request.",
        request="NativeClassifyRequest",
        reply="NativeClassifyReply",
        example={"model": "a-classifier", "input": ["I love this"]},
    )


def _native_similarity() -> dict[str, Any]:
    return _native(
        "similarity",
        "Compare texts with one",
        "By their dense vectors, with the function that the model declares.",
        request="NativeSimilarityRequest",
        reply="NativeSimilarityReply",
        example={**_EXAMPLE, "source": "hello there"},
    )


def _native_tokenize() -> dict[str, Any]:
    return _native(
        "tokenize",
        "Tokenise texts",
        "With the model's own tokenizer, and nothing cut.",
        request="NativeTokenizeRequest",
        reply="NativeTokenizeReply",
        example=_EXAMPLE,
    )


def _native_extract() -> dict[str, Any]:
    return _native(
        "extract",
        "Find entities in texts",
        "Places are code points of the text as it was sent. Texts longer than the model takes are read in windows.",
        request="NativeExtractRequest",
        reply="NativeExtractReply",
        example={"model": "dslim/bert-base-NER", "input": ["Ada Lovelace lived in London."]},
    )


def _native(
    name: str,
    summary: str,
    description: str,
    *,
    request: str,
    reply: str,
    example: dict[str, Any],
    msgpack_reply: str = "",
) -> dict[str, Any]:
    json, msgpack = "application/json", "application/msgpack"
    return {
        "operationId": name,
        "summary": summary,
        "description": "JSON or MessagePack in; Accept chooses what comes out, else it is as what came in. "
        + description,
        "parameters": _parameters(),
        "requestBody": {"required": True, "content": {json: _body(request, example), msgpack: _body(request)}},
        "responses": {
            "200": _success({json: _body(reply), msgpack: _body(msgpack_reply or reply)}),
            **_failures("NativeError", json, msgpack),
        },
    }


def _model(summary: str, name: str, struct: str) -> dict[str, Any]:
    page = _page(summary, name, struct)
    page["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    page["responses"]["404"] = _failure(_ERRORS[404], "OpenAIError", "application/json")
    return page


def _readiness() -> dict[str, Any]:
    page = _page("Whether requests would be answered", "readiness")
    page["responses"]["503"] = _failure(_ERRORS[503], "NativeError", "application/json")
    return page


def _page(summary: str, name: str, struct: str | None = None, media_type: str = "application/json") -> dict[str, Any]:
    content = _body(struct) if struct else {"schema": {"type": "string" if media_type == "text/plain" else "object"}}
    return {
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": "OK", "content": {media_type: content}}},
    }


def _body(struct: str, example: dict[str, Any] | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": {"$ref": _REF.format(name=struct)}}
    if example:
        body["example"] = example
    return body


def _parameters() -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": description, "schema": schema}
        for name, description, schema in _PARAMETERS
    ]


def _success(content: dict[str, Any]) -> dict[str, Any]:
    headers = {name: {"description": text, "schema": {"type": kind}} for name, (text, kind) in _REPLY_HEADERS.items()}
    return {"description": "Success.", "headers": headers, "content": content}


def _failures(struct: str, *media_types: str, statuses: dict[int, str] = _ERRORS) -> dict[str, Any]:
    kinds = media_types or ("application/json",)
    return {str(status): _failure(text, struct, *kinds) for status, text in sorted(statuses.items())}


def _failure(description: str, struct: str, *media_types: str) -> dict[str, Any]:
    return {"description": description, "content": {media_type: _body(struct) for media_type in media_types}}
