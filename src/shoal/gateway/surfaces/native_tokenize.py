"""Shoal's own API to tokenise: JSON and MessagePack in and out. Translates and nothing else."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from shoal.gateway.ask import Answer, Ask
from shoal.gateway.envelope import Envelope
from shoal.gateway.formats import Format
from shoal.gateway.surfaces.fields import InputType, ModelName, Prompt, PromptName, Texts
from shoal.gateway.surfaces.native import NativeSurface, NativeUsage, array_of, closing, encoders
from shoal.types import Render, TokenizeOptions

__all__ = ["NativeTokenize", "NativeTokenizeReply", "NativeTokenizeRequest", "NativeTokens"]


class NativeTokenizeRequest(msgspec.Struct):
    """Texts to tokens, however many; null means absent, unknown fields are ignored."""

    input: Texts = msgspec.field(default_factory=msgspec.Raw)
    model: ModelName = None
    add_special_tokens: Annotated[
        bool | None, Meta(description="Whether those that the model puts around a text are there. Default true.")
    ] = None
    prompt_name: PromptName = None
    prompt: Prompt = None
    input_type: InputType = None


class NativeTokens(msgspec.Struct):
    """The tokens of a text."""

    ids: Annotated[list[int], Meta(description="Places in the model's vocabulary.")]
    tokens: Annotated[list[str], Meta(description="Their names there.")]
    offsets: Annotated[
        list[tuple[int, int]],
        Meta(
            description="Start and end of each in the text as it was sent, in code points; [0, 0] of special tokens "
            "and of a prompt."
        ),
    ]
    special: Annotated[list[bool], Meta(description="Whether each was put around the text.")]


class NativeTokenizeReply(msgspec.Struct):
    """The reply: entries in the order of the input."""

    model: str
    max_length: Annotated[int, Meta(description="Tokens that the model takes, special ones included.")]
    results: list[NativeTokens]
    num_tokens: Annotated[list[int], Meta(description="An entry a text.")]
    usage: NativeUsage
    times: Annotated[dict[str, float], Meta(description="queue_ms, tokenize_ms, batch_ms, inference_ms, total_ms.")]
    request_id: str


class NativeTokenize(NativeSurface):
    """POST /v1/tokenize."""

    route = "/v1/tokenize"

    def __init__(self) -> None:
        self._envelope = Envelope(NativeTokenizeRequest)

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        request = self._envelope.open(body, body_format)
        return Ask(
            model=request.model,
            input=request.input,
            input_format=body_format,
            options=TokenizeOptions(
                has_special_tokens=request.add_special_tokens is not False,
                prompt_name=request.prompt_name,
                prompt=request.prompt,
                input_type=request.input_type,
            ),
            renders=(Render(reply_format),),
        )

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        between = b"," if reply_format == "json" else b""
        results = array_of(answer.body(between=between), answer.num_items, reply_format)
        reply = {
            "model": answer.card.id,
            "max_length": answer.card.max_length,
            "results": msgspec.Raw(results),
            **closing(answer),
        }
        del reply["truncated"]
        return encoders[reply_format](reply)
