"""Shoal's own API to classify: JSON and MessagePack in and out. Translates and nothing else."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import Input, InputTokenizer, TopK, Truncate, TruncationSide, WholeOrCut, truncate_of
from shoal.gateway.surfaces.native import NativeSurface, NativeUsage, array_of, closing, encoders
from shoal.types import ClassifyOptions, Render

__all__ = ["NativeClassify", "NativeClassifyReply", "NativeClassifyRequest", "NativeLabel"]

_DEFAULTS = ClassifyOptions()


class NativeClassifyRequest(msgspec.Struct):
    """Texts to labels; null means absent, unknown fields are ignored."""

    input: Input = msgspec.field(default_factory=msgspec.Raw)
    model: Annotated[str | None, Meta(description="Id or alias of a model, as /v1/models lists them.")] = None
    raw_scores: Annotated[bool | None, Meta(description="The model's logits instead of probabilities.")] = None
    top_k: TopK = None
    truncate: Truncate = None
    overflow: WholeOrCut = None
    truncation_side: TruncationSide = None
    labels: Annotated[
        list[str] | None, Meta(description="Labels of your own, judged by an NLI model as hypotheses about each text.")
    ] = None
    hypothesis_template: Annotated[
        str | None,
        Meta(description=f"Sentence in which a label stands for {{}}. Default: {_DEFAULTS.hypothesis_template}"),
    ] = None
    multi_label: Annotated[
        bool | None, Meta(description="Judge each label of your own alone, so that several may be true.")
    ] = None
    input_tokenizer: InputTokenizer = None


class NativeLabel(msgspec.Struct):
    """A label and its score."""

    label: str
    score: float


class NativeClassifyReply(msgspec.Struct):
    """The reply: entries in the order of the input."""

    model: str
    results: Annotated[list[list[NativeLabel]], Meta(description="Each text's labels, best first.")]
    num_tokens: Annotated[list[int], Meta(description="Tokens really run, an entry a text.")]
    truncated: Annotated[list[bool], Meta(description="Whether each text was cut.")]
    usage: NativeUsage
    times: Annotated[dict[str, float], Meta(description="queue_ms, tokenize_ms, batch_ms, inference_ms, total_ms.")]
    request_id: str


class NativeClassify(NativeSurface):
    """POST /v1/classify."""

    route = "/v1/classify"

    def __init__(self) -> None:
        self._envelope = Envelope(NativeClassifyRequest)

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        options = ClassifyOptions(
            raw_scores=bool(request.raw_scores),
            top_k=request.top_k,
            truncate=truncate_of(request.truncate, request.overflow),
            labels=tuple(request.labels or ()),
            hypothesis_template=request.hypothesis_template or _DEFAULTS.hypothesis_template,
            multi_label=bool(request.multi_label),
            truncation_side=request.truncation_side,
        )
        return Ask(
            model=request.model,
            input=request.input,
            input_format=body_format,
            options=options,
            renders=(Render(reply_format),),
            input_tokenizer=request.input_tokenizer,
        )

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        between = b"," if reply_format == "json" else b""
        results = array_of(answer.body(between=between), answer.num_items, reply_format)
        reply = {"model": answer.card.id, "results": msgspec.Raw(results), **closing(answer)}
        return encoders[reply_format](reply)
