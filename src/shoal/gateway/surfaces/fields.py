"""Fields that several surfaces share, with the text that stands in the API's description."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from shoal import types
from shoal.errors import InvalidRequest

__all__ = [
    "Dimensions",
    "Documents",
    "Input",
    "InputTokenizer",
    "InputType",
    "ModelName",
    "Normalize",
    "Overflow",
    "Prompt",
    "PromptName",
    "Texts",
    "TopK",
    "TopN",
    "Truncate",
    "TruncationSide",
    "overflow_of",
    "required",
    "truncate_of",
]

T = TypeVar("T")

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
Overflow = Annotated[
    Literal["error", "truncate", "chunk"] | None,
    Meta(
        description="What becomes of a text that is too long: error refuses it (as truncate: false), truncate cuts it "
        "(as truncate: true), chunk embeds it in windows and returns their mean, weighted by tokens."
    ),
]
TruncationSide = Annotated[Literal["left", "right"] | None, Meta(description="Which end of a long text is dropped.")]
Normalize = Annotated[bool | None, Meta(description="L2-normalise; absent: as the model's own modules say.")]
InputTokenizer = Annotated[
    str | None,
    Meta(description="If input holds token ids: the model whose vocabulary they are of, without special tokens."),
]
InputType = Annotated[
    Literal["query", "document"] | None,
    Meta(description="What the texts are: takes the model's prompt of that name, if it has one."),
]
ModelName = Annotated[str | None, Meta(description="Id or alias of a model, as /v1/models lists them.")]
_AT_LEAST_1 = {"minimum": 1}
TopN = Annotated[int | None, Meta(description="Return only so many results, the best.", extra_json_schema=_AT_LEAST_1)]
TopK = Annotated[int | None, Meta(description="Keep only so many, the best.", extra_json_schema=_AT_LEAST_1)]
Dimensions = Annotated[
    int | None,
    Meta(
        description="Cut to so many numbers and renormalise; only models trained for it.",
        extra_json_schema=_AT_LEAST_1,
    ),
]


WholeOrCut = Annotated[
    Literal["error", "truncate"] | None,
    Meta(description="What becomes of a text that is too long: error is truncate: false, truncate is truncate: true."),
]


def truncate_of(truncate: bool | None, overflow: Literal["error", "truncate"] | None) -> bool | None:
    """As `overflow_of`, where a text is not embedded in windows.

    Raises:
        InvalidRequest: the two words say different things.
    """
    said = overflow_of(truncate, overflow)
    return None if said is None else said == "truncate"


def overflow_of(truncate: bool | None, overflow: types.Overflow | None = None) -> types.Overflow | None:
    """What a request says of texts that are too long, in either of its two words for it.

    Raises:
        InvalidRequest: they say different things.
    """
    if truncate is None:
        return overflow
    if overflow is not None and truncate is (overflow == "error"):
        raise InvalidRequest(f"overflow is {overflow}, but truncate is {str(truncate).lower()}.", param="overflow")
    return overflow or ("truncate" if truncate else "error")


def required(value: T | None, field: str) -> T:
    """The value of a field that must be there.

    Raises:
        InvalidRequest: it is not.
    """
    if value is None:
        raise InvalidRequest(f"The field {field} is missing.", param=field)
    return value
