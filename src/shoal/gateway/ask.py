"""The native request that every surface translates to, the answer it translates from, and the checks against the model.

What can be refused from the model card is refused here, before anything is published. No HTTP, no queue.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from shoal.errors import InvalidRequest, ShoalError, UnsupportedOperation
from shoal.gateway.formats import Format
from shoal.gateway.items import Items
from shoal.types import ChunkReply, EmbedOptions, ModelCard, Operation, Render, StageTimes

__all__ = ["Answer", "Ask", "Surface", "check", "check_tokens"]

_MAX_PROMPT_BYTES = 16 * 1024
"""A prompt is repeated in front of each text and rides on each chunk."""


class Ask(msgspec.Struct):
    """What a client wants, whatever surface it spoke to.

    Attributes:
        model: as named by the client: id or alias; None where it named none.
        input: the value of `input`, undecoded, in `input_format`.
        render: how workers write each vector.
        input_tokenizer: whose token ids `input` holds, if it holds any.
    """

    model: str | None
    operation: Operation
    input: msgspec.Raw
    input_format: Format
    options: EmbedOptions
    render: Render
    input_tokenizer: str | None = None


class Answer(msgspec.Struct):
    """A request answered: the replies to its chunks, in order, and what they add up to.

    Attributes:
        times: of the chunk that took longest.
        total_s: from the first byte read to here.
    """

    ask: Ask
    card: ModelCard
    replies: list[ChunkReply]
    num_items: int
    num_tokens: int
    num_truncated: int
    times: StageTimes
    total_s: float
    request_id: str


class Surface(Protocol):
    """One API: translates requests, replies and errors, and nothing else."""

    route: str
    formats: tuple[Format, ...]

    def read(self, body: bytes, body_format: Format, reply_format: Format) -> Ask:
        """The native request in a body.

        Raises:
            InvalidRequest: a field is wrong; `param` names it.
        """
        ...

    def reply(self, answer: Answer, reply_format: Format) -> bytes:
        """The body of a success."""
        ...

    def error(self, error: ShoalError, request_id: str, reply_format: Format) -> bytes:
        """The body of a failure."""
        ...


def check(ask: Ask, card: ModelCard) -> EmbedOptions:
    """The options as workers shall see them: a `dimensions` that changes nothing is left out.

    Raises:
        UnsupportedOperation: the model does something else.
        InvalidRequest: an option that this model cannot honour; `param` names it.
    """
    if ask.operation not in card.operations:
        can = ", ".join(card.operations) or "nothing"
        raise UnsupportedOperation(f"{card.id} cannot {ask.operation}; it can: {can}.", param="model")
    options = ask.options
    if options.prompt_name is not None or options.prompt is not None:
        _check_prompt(options, card)
    if options.dimensions is not None:
        _check_dimensions(options.dimensions, card)
        if options.dimensions == card.dimensions:
            return msgspec.structs.replace(options, dimensions=None)
    return options


def _check_prompt(options: EmbedOptions, card: ModelCard) -> None:
    if options.prompt is not None:
        if options.prompt_name is not None:
            raise InvalidRequest("prompt and prompt_name exclude each other.", param="prompt")
        size_bytes = len(options.prompt.encode())
        if size_bytes > _MAX_PROMPT_BYTES:
            raise InvalidRequest(f"prompt is {size_bytes} bytes; the limit is {_MAX_PROMPT_BYTES}.", param="prompt")
    elif options.prompt_name not in card.prompts:
        known = ", ".join(card.prompts) or "none"
        raise InvalidRequest(
            f"{card.id} has no prompt named {str(options.prompt_name)[:100]!r}; it has: {known}.", param="prompt_name"
        )


def _check_dimensions(dimensions: int, card: ModelCard) -> None:
    if not 1 <= dimensions <= card.dimensions:
        raise InvalidRequest(
            f"dimensions is {str(dimensions)[:20]}; {card.id} has 1 to {card.dimensions}.", param="dimensions"
        )
    if dimensions != card.dimensions and not card.matryoshka_dimensions:
        raise InvalidRequest(
            f"dimensions is {dimensions}, but {card.id} was not trained to be cut: it has {card.dimensions}.",
            param="dimensions",
            hint="Leave dimensions out.",
        )


def check_tokens(items: Items, input_tokenizer: str | None, card: ModelCard) -> None:
    """Accept token ids only where the request says that they are this model's own: others fit its range too.

    Raises:
        InvalidRequest: they are nobody's, or another model's.
    """
    if not items.are_tokens or input_tokenizer == card.id or input_tokenizer in card.aliases:
        return
    hint = (
        "Send texts: with langchain's OpenAIEmbeddings set check_embedding_ctx_length=False. "
        f'If the ids are {card.id}\'s own, without special tokens, say so with "input_tokenizer": "{card.id}".'
    )
    if input_tokenizer is None:
        raise InvalidRequest("input holds token ids, and nothing says whose vocabulary.", param="input", hint=hint)
    raise InvalidRequest(
        f"input_tokenizer is {input_tokenizer[:100]!r}; {card.id} takes only its own ids.",
        param="input_tokenizer",
        hint=hint,
    )
