"""TEI's API to rank, to compare and to label. Translates and nothing else; see `tei`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from shoal.errors import InvalidRequest
from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import Documents, Texts, required
from shoal.gateway.surfaces.ranking import as_it_is, rows, scores_of
from shoal.gateway.surfaces.tei import Direction, PromptName, Tei, Truncate, ask_of, encode, side
from shoal.types import ClassifyOptions, Render, RerankOptions, SimilarityOptions

__all__ = [
    "TeiPredict",
    "TeiPredictRequest",
    "TeiPrediction",
    "TeiRank",
    "TeiRerank",
    "TeiRerankRequest",
    "TeiSimilarity",
    "TeiSimilarityRequest",
]


class TeiRerankRequest(msgspec.Struct):
    """Texts by their relevance to a query; null means absent, unknown fields are ignored."""

    texts: Documents = msgspec.field(default_factory=msgspec.Raw)
    query: Annotated[str | None, Meta(description="What the texts are ranked for. It is never cut.")] = None
    raw_scores: Annotated[bool | None, Meta(description="Logits instead of what the model makes of them.")] = None
    return_text: Annotated[bool | None, Meta(description="Give each result its text.")] = None
    truncate: Truncate = None
    truncation_direction: Direction = None


class TeiRank(msgspec.Struct):
    """A text's place in the request, its score, and itself if that was asked for."""

    index: int
    score: float
    text: str | msgspec.UnsetType = msgspec.UNSET


class TeiSentences(msgspec.Struct):
    """Texts, and the one that they are compared to."""

    sentences: Texts = msgspec.field(default_factory=msgspec.Raw)
    source_sentence: str | None = None


class TeiSimilarityParameters(msgspec.Struct):
    """How the texts are embedded."""

    truncate: Truncate = None
    truncation_direction: Direction = None
    prompt_name: PromptName = None


class TeiSimilarityRequest(msgspec.Struct):
    """Texts by how alike they are to one; null means absent, unknown fields are ignored."""

    inputs: TeiSentences | None = None
    parameters: TeiSimilarityParameters | None = None


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
    truncation_direction: Direction = None


class TeiPrediction(msgspec.Struct):
    """A label and its score."""

    label: str
    score: float


class TeiRerank(Tei):
    """POST /tei/rerank."""

    route = "/tei/rerank"
    names = Tei.names | {"input": "texts"}

    def __init__(self) -> None:
        self._envelope = Envelope(TeiRerankRequest, "texts")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        options = RerankOptions(
            required(request.query, "query"),
            bool(request.raw_scores),
            request.truncate,
            side(request.truncation_direction),
        )
        ask = ask_of(request.texts, body_format, options, Render("raw"), request=request)
        ask.are_documents = True
        return ask

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        request: TeiRerankRequest = answer.ask.request
        return encode(rows(answer, score="score", document="text", shown=as_it_is if request.return_text else None))


class TeiSimilarity(Tei):
    """POST /tei/similarity."""

    route = "/tei/similarity"
    names = Tei.names | {"input": "sentences", "source": "source_sentence"}

    def __init__(self) -> None:
        self._envelope = Envelope(TeiSimilarityRequest, "inputs")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        texts = required(request.inputs, "inputs")
        parameters = request.parameters or TeiSimilarityParameters()
        options = SimilarityOptions(
            required(texts.source_sentence, "inputs.source_sentence"),
            parameters.truncate,
            side(parameters.truncation_direction),
            parameters.prompt_name,
        )
        return ask_of(texts.sentences, body_format, options, Render("raw"))

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        return encode(scores_of(answer))


class TeiPredict(Tei):
    """POST /tei/predict."""

    route = "/tei/predict"

    def __init__(self) -> None:
        self._envelope = Envelope(TeiPredictRequest, "inputs")

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        texts, is_batch = _texts_of(bytes(request.inputs))
        options = ClassifyOptions(
            raw_scores=bool(request.raw_scores),
            truncate=request.truncate,
            truncation_side=side(request.truncation_direction),
        )
        return ask_of(texts, body_format, options, Render("json"), request=is_batch)

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        labels = answer.body(between=b",")
        return b"[%b]" % labels if answer.ask.request else labels


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
