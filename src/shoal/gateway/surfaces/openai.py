"""OpenAI's embeddings API, with a few fields more. Translates and nothing else."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from shoal.errors import InvalidRequest, ShoalError
from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import (
    Dimensions,
    Input,
    InputTokenizer,
    Normalize,
    Overflow,
    Prompt,
    PromptName,
    Truncate,
    TruncationSide,
    overflow_of,
)
from shoal.gateway.surfaces.lists import BASE64, NUMBERS, ListedVector, vectors
from shoal.types import EmbedOptions

__all__ = ["OpenAI", "OpenAIEmbedRequest", "OpenAIError", "OpenAIList"]


class OpenAIEmbedRequest(msgspec.Struct):
    """A request as OpenAI defines it; null means absent, unknown fields are ignored. After `user` come Shoal's own."""

    input: Input = msgspec.field(default_factory=msgspec.Raw)
    model: Annotated[str | None, Meta(description="Id or alias of a model, as /v1/models lists them.")] = None
    encoding_format: Annotated[
        Literal["float", "base64"] | None, Meta(description="base64: little-endian float32. Default float.")
    ] = None
    dimensions: Dimensions = None
    user: Annotated[str | None, Meta(description="Ignored.")] = None
    input_type: Annotated[str | None, Meta(description="Another word for prompt_name.")] = None
    prompt_name: PromptName = None
    prompt: Prompt = None
    truncate: Truncate = None
    overflow: Overflow = None
    truncation_side: TruncationSide = None
    normalize: Normalize = None
    input_tokenizer: InputTokenizer = None


class OpenAIUsage(msgspec.Struct):
    """Tokens really run, special tokens included, after truncation."""

    prompt_tokens: int
    total_tokens: int


class OpenAIList(msgspec.Struct):
    """The reply: vectors in the order of the input."""

    object: Literal["list"]
    data: list[ListedVector]
    model: str
    usage: OpenAIUsage


class OpenAIErrorBody(msgspec.Struct):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(msgspec.Struct):
    """Every answer that is no success."""

    error: OpenAIErrorBody


_encode = msgspec.json.Encoder().encode
_RENDERS = {"float": NUMBERS, "base64": BASE64}


class OpenAI:
    """POST /v1/embeddings."""

    route = "/v1/embeddings"
    formats: tuple[Format, ...] = ("json",)
    statuses: dict[str, int] = {}
    names: dict[str, str] = {}

    def __init__(self) -> None:
        self._envelope = Envelope(OpenAIEmbedRequest)

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        if request.input_type is not None and request.prompt_name not in (None, request.input_type):
            raise InvalidRequest("input_type and prompt_name say different things.", param="input_type")
        options = EmbedOptions(
            dimensions=request.dimensions,
            normalize=request.normalize,
            overflow=overflow_of(request.truncate, request.overflow),
            truncation_side=request.truncation_side,
            prompt_name=request.prompt_name if request.prompt_name is not None else request.input_type,
            prompt=request.prompt,
        )
        return Ask(
            model=request.model,
            input=request.input,
            input_format=body_format,
            options=options,
            renders=(_RENDERS[request.encoding_format or "float"],),
            input_tokenizer=request.input_tokenizer,
        )

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        return vectors(answer, _encode(OpenAIUsage(answer.num_tokens, answer.num_tokens)))

    def error(self, error: ShoalError, request_id: str, reply_format: Format) -> bytes:
        kind = "invalid_request_error" if error.status < 500 else "server_error"
        if error.status == 429:
            kind = "rate_limit_error"
        return _encode(OpenAIError(OpenAIErrorBody(str(error), kind, error.param, error.code)))
