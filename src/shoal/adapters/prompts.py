"""Which of a model's prompts a request means. Pure."""

from __future__ import annotations

from typing import Literal, Protocol

from shoal.catalog.spec import ModelSpec
from shoal.errors import InvalidRequest

__all__ = ["Prompted", "prompt_of"]

_PROMPTS_OF_TYPE = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""Prompt names that sentence-transformers looks for, the first one there wins."""


class Prompted(Protocol):
    """Options that may put a text in front of each item, see `types.EmbedOptions`."""

    @property
    def prompt(self) -> str | None: ...
    @property
    def prompt_name(self) -> str | None: ...
    @property
    def input_type(self) -> Literal["query", "document"] | None: ...


def prompt_of(spec: ModelSpec, options: Prompted, *, default_name: str | None = None) -> str:
    """The text to put in front, "" for none.

    Args:
        default_name: the prompt to take if the request says nothing.

    Raises:
        InvalidRequest: there is no such prompt, or two are named.
    """
    if options.prompt is not None:
        if options.prompt_name is not None:
            raise InvalidRequest("prompt and prompt_name exclude each other.", param="prompt")
        return options.prompt
    name = options.prompt_name
    if name is None and options.input_type is not None:
        candidates = _PROMPTS_OF_TYPE[options.input_type]
        name = next((candidate for candidate in candidates if candidate in spec.prompts), None)
    if name is None:
        name = default_name
    if name is None:
        return ""
    if name not in spec.prompts:
        known = ", ".join(sorted(spec.prompts)) or "none"
        raise InvalidRequest(f"prompt_name is {name!r}; the prompts of {spec.id} are: {known}.", param="prompt_name")
    return spec.prompts[name]
