"""The API of Hugging Face's text-embeddings-inference (TEI). Translates and nothing else.

TEI serves one model, so its requests name none. Base URL `/tei/MODEL`; under `/tei`, and at the root where nothing else
has its paths, it is the only served model that does what the path says.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

import shoal
from shoal.errors import InvalidRequest, ShoalError
from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import Documents, Texts, overflow_of
from shoal.gateway.surfaces.native_rerank import ranked
from shoal.types import ClassifyOptions, EmbedOptions, ModelCard, Options, Render, RerankOptions

__all__ = [
    "TeiEmbed",
    "TeiEmbedRequest",
    "TeiError",
    "TeiInfo",
    "TeiPredict",
    "TeiPredictRequest",
    "TeiPrediction",
    "TeiRank",
    "TeiRerank",
    "TeiRerankRequest",
    "TeiSparse",
    "TeiSparseRequest",
    "TeiWeight",
    "info",
]

Truncate = Annotated[
    bool | None, Meta(description="true cuts a text that is too long, false refuses it; absent: as the server is set.")
]
Direction = Annotated[
    Literal["Left", "Right", "left", "right"] | None, Meta(description="Which end of a long text is dropped.")
]
PromptName = Annotated[str | None, Meta(description="One of the model's own prompts, put in front of each text.")]


class TeiEmbedRequest(msgspec.Struct):
    """Texts to vectors; null means absent, unknown fields are ignored."""

    inputs: Texts = msgspec.field(default_factory=msgspec.Raw)
    normalize: Annotated[bool | None, Meta(description="L2-normalise. Default true.")] = None
    truncate: Truncate = None
    truncation_direction: Direction = None
    prompt_name: PromptName = None
    dimensions: Annotated[
        int | None, Meta(description="Cut to so many numbers and renormalise; only models trained for it.")
    ] = None


class TeiSparseRequest(msgspec.Struct):
    """Texts to sparse vectors; null means absent, unknown fields are ignored."""

    inputs: Texts = msgspec.field(default_factory=msgspec.Raw)
    truncate: Truncate = None
    truncation_direction: Direction = None
    prompt_name: PromptName = None


class TeiWeight(msgspec.Struct):
    """An entry of a sparse vector."""

    index: int
    value: float


class TeiRerankRequest(msgspec.Struct):
    """Texts by their relevance to a query; null means absent, unknown fields are ignored."""

    texts: Documents = msgspec.field(default_factory=msgspec.Raw)
    query: Annotated[str | None, Meta(description="What the texts are ranked for. It is never cut.")] = None
    raw_scores: Annotated[bool | None, Meta(description="Logits instead of what the model makes of them.")] = None
    return_text: Annotated[bool | None, Meta(description="Give each result its text.")] = None
    truncate: Truncate = None


class TeiRank(msgspec.Struct):
    """A text's place in the request, its score, and itself if that was asked for."""

    index: int
    score: float
    text: str | msgspec.UnsetType = msgspec.UNSET


class TeiPredictRequest(msgspec.Struct):
    """Texts to labels; null means absent, unknown fields are ignored."""

    inputs: Annotated[
        msgspec.Raw,
        Meta(
            description="A text, or lists that hold one text each. Pairs are refused.",
            extra_json_schema={
                "oneOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1},
                    {
                        "type": "array",
                        "items": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1},
                        "minItems": 1,
                    },
                ]
            },
        ),
    ] = msgspec.field(default_factory=msgspec.Raw)
    raw_scores: Annotated[bool | None, Meta(description="Logits instead of probabilities.")] = None
    truncate: Truncate = None


class TeiPrediction(msgspec.Struct):
    """A label and its score."""

    label: str
    score: float


class TeiError(msgspec.Struct):
    """Every answer that is no success."""

    error: str
    error_type: Literal["validation", "overloaded", "backend", "unhealthy"]


class TeiInfo(msgspec.Struct):
    """What TEI says of its model, as far as it is known here."""

    model_id: str
    model_sha: str | None
    model_type: Annotated[dict[str, dict[str, Any]], Meta(description="One of embedding, reranker, classifier.")]
    max_input_length: int
    version: str


def info(card: ModelCard) -> TeiInfo:
    """What GET /tei/info says of a model."""
    id2label = {str(place): label for place, label in enumerate(card.labels)}
    label2id = {label: place for place, label in enumerate(card.labels)}
    kind: dict[str, dict[str, Any]] = {"embedding": {}}
    if "embed" not in card.operations:
        name = "reranker" if card.rerank_method == "cross_encoder" else "classifier"
        kind = {name: {"id2label": id2label, "label2id": label2id}}
    return TeiInfo(card.id, card.revision or None, kind, card.max_length, shoal.__version__)


_encode = msgspec.json.Encoder().encode
_TYPES: dict[int, Literal["overloaded", "backend", "unhealthy"]] = {
    429: "overloaded",
    500: "backend",
    503: "unhealthy",
    504: "unhealthy",
}


class _Tei:
    formats: tuple[Format, ...] = ("json",)
    statuses = {"invalid_request": 422, "context_length_exceeded": 413, "model_refused": 424, "internal_error": 424}

    def error(self, error: ShoalError, request_id: str, reply_format: Format) -> bytes:
        return _encode(TeiError(str(error), _TYPES.get(error.status, "validation")))


class TeiEmbed(_Tei):
    """POST /tei/embed, and /tei itself, which clients take for a model's own address."""

    def __init__(self, route: str) -> None:
        self.route = route
        self._envelope = Envelope(TeiEmbedRequest, "inputs")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        options = EmbedOptions(
            dimensions=request.dimensions,
            normalize=request.normalize is not False,
            overflow=overflow_of(request.truncate),
            truncation_side=_side(request.truncation_direction),
            prompt_name=request.prompt_name,
        )
        return _ask(request.inputs, body_format, options, Render("json"))

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        return b"[%b]" % answer.body(between=b",")


class TeiSparse(_Tei):
    """POST /tei/embed_sparse."""

    route = "/tei/embed_sparse"

    def __init__(self) -> None:
        self._envelope = Envelope(TeiSparseRequest, "inputs")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        options = EmbedOptions(
            overflow=overflow_of(request.truncate),
            truncation_side=_side(request.truncation_direction),
            prompt_name=request.prompt_name,
            outputs=("sparse",),
        )
        return _ask(request.inputs, body_format, options, Render("entries"))

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        return b"[%b]" % answer.body(between=b",")


class TeiRerank(_Tei):
    """POST /tei/rerank."""

    route = "/tei/rerank"

    def __init__(self) -> None:
        self._envelope = Envelope(TeiRerankRequest, "texts")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        if request.query is None:
            raise InvalidRequest("The field query is missing.", param="query")
        options = RerankOptions(request.query, bool(request.raw_scores), request.truncate)
        ask = _ask(request.texts, body_format, options, Render("raw"), field="texts", request=request)
        ask.are_documents = True
        return ask

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        request: TeiRerankRequest = answer.ask.request
        ranks: list[dict[str, Any]] = [{"index": index, "score": score} for index, score in ranked(answer, None)]
        if request.return_text:
            for rank in ranks:
                rank["text"] = answer.items.value(rank["index"], reply_format)
        return _encode(ranks)


class TeiPredict(_Tei):
    """POST /tei/predict."""

    route = "/tei/predict"

    def __init__(self) -> None:
        self._envelope = Envelope(TeiPredictRequest, "inputs")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        texts, is_batch = _texts_of(bytes(request.inputs))
        options = ClassifyOptions(raw_scores=bool(request.raw_scores), truncate=request.truncate)
        return _ask(texts, body_format, options, Render("json"), request=is_batch)

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        labels = answer.body(between=b",")
        return b"[%b]" % labels if answer.ask.request else labels


def _ask(
    texts: msgspec.Raw,
    body_format: Format,
    options: Options,
    render: Render,
    *,
    field: str = "inputs",
    request: Any = None,
) -> Ask:
    return Ask(
        model=None,
        input=texts,
        input_format=body_format,
        options=options,
        renders=(render,),
        field=field,
        request=request,
        may_omit_model=True,
    )


def _side(direction: str | None) -> Literal["left", "right"] | None:
    return None if direction is None else "left" if direction.lower() == "left" else "right"


_decode_lists = msgspec.json.Decoder(list[list[msgspec.Raw]]).decode


def _texts_of(inputs: bytes) -> tuple[msgspec.Raw, bool]:
    """What stands in `inputs` as a text or a list of texts, and whether the reply is a list of lists."""
    if inputs[:1] != b"[":
        return msgspec.Raw(inputs), False
    try:
        rows = _decode_lists(inputs)
        is_batch = True
    except msgspec.ValidationError:
        rows, is_batch = [msgspec.json.decode(inputs, type=list[msgspec.Raw])], False
    for place, row in enumerate(rows):
        if len(row) != 1:
            where = f"inputs[{place}]" if is_batch else "inputs"
            raise InvalidRequest(
                f"{where} holds {len(row)} texts; a classifier takes one.",
                param=where,
                hint="A list of texts is [[text], [text]]; pairs are ranked by /rerank.",
            )
        if not bytes(row[0]).startswith(b'"'):
            raise InvalidRequest(f"inputs[{place}] is no text.", param=f"inputs[{place}]")
    return msgspec.Raw(b"[%b]" % b",".join([bytes(row[0]) for row in rows])), is_batch
