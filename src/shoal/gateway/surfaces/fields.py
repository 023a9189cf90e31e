"""Fields that several surfaces share, with the text that stands in the API's description."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from shoal.errors import InvalidRequest

__all__ = [
    "Documents",
    "Input",
    "InputTokenizer",
    "ModelName",
    "Normalize",
    "Prompt",
    "PromptName",
    "Texts",
    "TopN",
    "Truncate",
    "TruncationSide",
    "check_top_n",
]

Input = Annotated[
    msgspec.Raw,
    Meta(
        description="A text, texts, a list of token ids, or lists of token ids (these need input_tokenizer).",
        extra_json_schema={
            "oneOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
                {
                    "type": "array",
                    "items": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
                    "minItems": 1,
                },
            ]
        },
    ),
]
Texts = Annotated[
    msgspec.Raw,
    Meta(
        description="A text, or texts.",
        extra_json_schema={
            "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
        },
    ),
]
Documents = Annotated[
    msgspec.Raw,
    Meta(
        description="Texts, or objects that hold one each; all alike.",
        extra_json_schema={
            "oneOf": [
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                {
                    "type": "array",
                    "items": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
                    "minItems": 1,
                },
            ]
        },
    ),
]
Prompt = Annotated[str | None, Meta(description="Literal text in front of each text, instead of prompt_name.")]
PromptName = Annotated[str | None, Meta(description="One of the model's own prompts, put in front of each text.")]
Truncate = Annotated[
    bool | None,
    Meta(description="true cuts a text that is too long and counts it in X-Shoal-Truncated, false refuses it."),
]
TruncationSide = Annotated[Literal["left", "right"] | None, Meta(description="Which end of a long text is dropped.")]
Normalize = Annotated[bool | None, Meta(description="L2-normalise; absent: as the model's own modules say.")]
InputTokenizer = Annotated[
    str | None,
    Meta(description="If input holds token ids: the model whose vocabulary they are of, without special tokens."),
]
ModelName = Annotated[str | None, Meta(description="Id or alias of a model, as /v1/models lists them.")]
TopN = Annotated[int | None, Meta(description="Return only so many results, the best.")]


def check_top_n(top_n: int | None, field: str) -> None:
    """Raises:
    InvalidRequest: less than one result is asked for.
    """
    if top_n is not None and top_n < 1:
        raise InvalidRequest(f"{field} is {top_n}; it must be at least 1.", param=field)
