"""The API of Hugging Face's text-embeddings-inference (TEI). Translates and nothing else.

TEI serves one model, so its requests name none. Base URL `/tei/MODEL`; under `/tei`, and at the root where nothing else
has its paths, it is the only served model that does what the path says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

import shoal
from shoal.errors import ShoalError
from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import Dimensions, Texts, overflow_of
from shoal.types import EmbedOptions, LoadedModel, ModelCard, Options, Output, Render

__all__ = [
    "Direction",
    "PromptName",
    "Tei",
    "TeiEmbed",
    "TeiEmbedAll",
    "TeiEmbedRequest",
    "TeiError",
    "TeiInfo",
    "TeiOutputRequest",
    "TeiSparse",
    "TeiWeight",
    "Truncate",
    "ask_of",
    "encode",
    "info",
    "side",
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
    dimensions: Dimensions = None


class TeiOutputRequest(msgspec.Struct):
    """Texts to sparse vectors, or to vectors of their tokens; null means absent, unknown fields are ignored."""

    inputs: Texts = msgspec.field(default_factory=msgspec.Raw)
    truncate: Truncate = None
    truncation_direction: Direction = None
    prompt_name: PromptName = None


class TeiWeight(msgspec.Struct):
    """An entry of a sparse vector."""

    index: int
    value: float


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
    max_client_batch_size: Annotated[int, Meta(description="Most texts in a request.")]
    version: str
    model_dtype: Annotated[str | msgspec.UnsetType, Meta(description="Once a worker has it loaded.")] = msgspec.UNSET
    max_batch_tokens: Annotated[int | msgspec.UnsetType, Meta(description="Likewise.")] = msgspec.UNSET


def info(card: ModelCard, loaded: Sequence[LoadedModel], max_items: int) -> TeiInfo:
    """What GET /tei/info says of a model.

    Args:
        loaded: its state where it is ready.
        max_items: most texts in a request.
    """
    id2label = {str(place): label for place, label in enumerate(card.labels)}
    label2id = {label: place for place, label in enumerate(card.labels)}
    kind: dict[str, dict[str, Any]] = {"embedding": {}}
    if "embed" not in card.operations:
        name = "reranker" if card.rerank_method == "cross_encoder" else "classifier"
        kind = {name: {"id2label": id2label, "label2id": label2id}}
    about = TeiInfo(card.id, card.revision or None, kind, card.max_length, max_items, shoal.__version__)
    if loaded:
        about.model_dtype, about.max_batch_tokens = loaded[0].precision, loaded[0].quantum_tokens
    return about


encode = msgspec.json.Encoder().encode
_TYPES: dict[int, Literal["overloaded", "backend", "unhealthy"]] = {
    429: "overloaded",
    500: "backend",
    503: "unhealthy",
    504: "unhealthy",
}


class Tei:
    """What all of TEI's routes share."""

    formats: tuple[Format, ...] = ("json",)
    statuses = {"invalid_request": 422, "context_length_exceeded": 413, "model_refused": 424, "internal_error": 424}
    names = {"input": "inputs", "truncation_side": "truncation_direction"}

    def error(self, error: ShoalError, request_id: str, reply_format: Format) -> bytes:
        return encode(TeiError(str(error), _TYPES.get(error.status, "validation")))


class TeiEmbed(Tei):
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
            truncation_side=side(request.truncation_direction),
            prompt_name=request.prompt_name,
        )
        return ask_of(request.inputs, body_format, options, Render("json"))

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        return b"[%b]" % answer.body(between=b",")


class _TeiOutput(Tei):
    """One of the outputs that are no dense vector."""

    output: ClassVar[Output]
    render: ClassVar[Render]

    def __init__(self) -> None:
        self._envelope = Envelope(TeiOutputRequest, "inputs")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        options = EmbedOptions(
            overflow=overflow_of(request.truncate),
            truncation_side=side(request.truncation_direction),
            prompt_name=request.prompt_name,
            outputs=(self.output,),
        )
        return ask_of(request.inputs, body_format, options, self.render)

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        return b"[%b]" % answer.body(between=b",")


class TeiSparse(_TeiOutput):
    """POST /tei/embed_sparse."""

    route = "/tei/embed_sparse"
    output, render = "sparse", Render("entries")


class TeiEmbedAll(_TeiOutput):
    """POST /tei/embed_all."""

    route = "/tei/embed_all"
    output, render = "multivector", Render("json")


def ask_of(
    texts: msgspec.Raw,
    body_format: Format,
    options: Options,
    render: Render,
    *,
    request: Any = None,
) -> Ask:
    """The native request of one that names no model."""
    return Ask(
        model=None,
        input=texts,
        input_format=body_format,
        options=options,
        renders=(render,),
        request=request,
        may_omit_model=True,
    )


def side(direction: str | None) -> Literal["left", "right"] | None:
    """Which end of a long text is dropped."""
    return None if direction is None else "left" if direction.lower() == "left" else "right"
