"""The native request that every surface translates to, the answer it translates from, and the checks against the model.

What can be refused from the model card is refused here, before anything is published. No HTTP, no queue.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

import msgspec

from shoal.errors import InvalidRequest, ShoalError, UnsupportedOperation
from shoal.gateway.formats import Format
from shoal.gateway.items import Items
from shoal.types import (
    ChunkReply,
    ClassifyOptions,
    EmbedOptions,
    ExtractOptions,
    ModelCard,
    Options,
    Render,
    RerankOptions,
    SimilarityOptions,
    StageTimes,
    TokenizeOptions,
    operation_of,
)

__all__ = ["Answer", "Ask", "Surface", "check", "check_tokens", "is_able", "renamed"]

_MAX_FIELD_BYTES = 16 * 1024
"""A prompt, query or label is put to each item and rides on each chunk."""

_MAX_LABELS = 100


class Ask(msgspec.Struct):
    """What a client wants, whatever surface it spoke to.

    Attributes:
        model: as named by the client: id or alias; None where it named none.
        input: the value of the field that holds the items, undecoded, in `input_format`.
        options: what to do with each item, and how.
        renders: how workers write each output.
        input_tokenizer: whose token ids `input` holds, if it holds any.
        are_documents: whether the items may be objects with a field `text`.
        request: what only the surface's own `reply` needs.
        may_omit_model: whether a request that names no model gets the only one served that can do it.
    """

    model: str | None
    input: msgspec.Raw
    input_format: Format
    options: Options
    renders: tuple[Render, ...]
    input_tokenizer: str | None = None
    are_documents: bool = False
    request: Any = None
    may_omit_model: bool = False


class Answer(msgspec.Struct):
    """A request answered: the replies to its chunks, in order, and what they add up to.

    Attributes:
        times: of the chunk that took longest.
        total_s: from the first byte read to here.
    """

    ask: Ask
    card: ModelCard
    replies: list[ChunkReply]
    items: Items
    num_tokens: int
    num_truncated: int
    times: StageTimes
    total_s: float
    request_id: str

    @property
    def num_items(self) -> int:
        return len(self.items.raw)

    @property
    def tokens_by_item(self) -> list[int]:
        return [count for reply in self.replies for count in reply.num_tokens]

    @property
    def truncated_by_item(self) -> list[bool]:
        return [was_cut for reply in self.replies for was_cut in reply.truncated]

    def body(self, output: int = 0, between: bytes = b"") -> bytes:
        """The bytes of one output, all chunks joined."""
        return between.join([reply.outputs[output].body for reply in self.replies])


class Surface(Protocol):
    """One API: translates requests, replies and errors, and nothing else.

    Attributes:
        route: its path.
        formats: what bodies come in.
        statuses: HTTP statuses by error code, where the API has others than the errors themselves.
        names: what the API calls the native request's fields, where it has other names for them.
    """

    route: str
    formats: tuple[Format, ...]
    statuses: dict[str, int]
    names: dict[str, str]

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


def check(ask: Ask, card: ModelCard) -> Options:
    """The options as workers shall see them: a `dimensions` that changes nothing is left out.

    Raises:
        UnsupportedOperation: the model does something else.
        InvalidRequest: an option that this model cannot honour; `param` names it.
    """
    operation = operation_of(ask.options)
    if operation not in card.operations:
        can = ", ".join(card.operations) or "nothing"
        raise UnsupportedOperation(f"{card.id} cannot {operation}; it can: {can}.", param="model")
    match ask.options:
        case EmbedOptions():
            return _check_embed(ask.options, card)
        case RerankOptions():
            _check_rerank(ask.options, card)
        case ClassifyOptions():
            _check_classify(ask.options)
        case SimilarityOptions():
            _check_size(ask.options.source, "source")
            _check_prompt(ask.options, card)
        case TokenizeOptions():
            _check_prompt(ask.options, card)
        case ExtractOptions():
            _check_extract(ask.options, card)
    return ask.options


def is_able(options: Options, card: ModelCard) -> bool:
    """Whether a model was made for this: one that only embeds can rank too, but is no reranker."""
    match options:
        case EmbedOptions():
            return "embed" in card.operations and set(options.outputs) <= set(card.outputs)
        case RerankOptions():
            return card.rerank_method == "cross_encoder"
        case ClassifyOptions():
            return "classify" in card.operations and card.rerank_method != "cross_encoder"
        case SimilarityOptions() | TokenizeOptions():
            return operation_of(options) in card.operations
        case ExtractOptions():
            return "extract" in card.operations


def _check_embed(options: EmbedOptions, card: ModelCard) -> EmbedOptions:
    for output in options.outputs:
        if output not in card.outputs:
            raise UnsupportedOperation(
                f"{card.id} has no output {output}; it has: {', '.join(card.outputs)}.", param="outputs"
            )
    if not options.outputs or len(set(options.outputs)) < len(options.outputs):
        raise InvalidRequest("outputs must name at least one, and each once.", param="outputs")
    if options.overflow == "chunk" and options.outputs != ("dense",):
        raise InvalidRequest("overflow is chunk, but only dense vectors have a mean.", param="overflow")
    _check_top_k(options.top_k)
    _check_pool_factor(options)
    _check_prompt(options, card)
    if options.dimensions is not None:
        _check_dimensions(options.dimensions, card)
        if options.dimensions == card.dimensions:
            return msgspec.structs.replace(options, dimensions=None)
    return options


def _check_rerank(options: RerankOptions, card: ModelCard) -> None:
    _check_size(options.query, "query")
    if options.instruction is None:
        return
    if not card.takes_instruction:
        raise UnsupportedOperation(
            f"{card.id} takes no instruction.", param="instruction", hint="Leave it out, or put it into the query."
        )
    _check_size(options.instruction, "instruction")


def _check_extract(options: ExtractOptions, card: ModelCard) -> None:
    for label in options.labels:
        if label not in card.labels:
            raise InvalidRequest(
                f"labels holds {label[:100]!r}; {card.id} finds: {', '.join(card.labels)}.", param="labels"
            )
    if not 0 <= options.threshold < 1:
        raise InvalidRequest(f"threshold is {options.threshold}; it must be from 0 to less than 1.", param="threshold")
    overlap, limit = options.overlap_tokens, card.max_length - 1
    if overlap is not None and not 0 <= overlap <= limit:
        raise InvalidRequest(
            f"overlap_tokens is {overlap}; windows of {card.id} can share 0 to {limit}.", param="overlap_tokens"
        )


def _check_classify(options: ClassifyOptions) -> None:
    _check_top_k(options.top_k)
    if len(options.labels) > _MAX_LABELS:
        raise InvalidRequest(f"labels holds {len(options.labels)}; the limit is {_MAX_LABELS}.", param="labels")
    if len(set(options.labels)) < len(options.labels):
        raise InvalidRequest("labels holds a label twice.", param="labels")
    for text in options.labels:
        _check_size(text, "labels")
    _check_size(options.hypothesis_template, "hypothesis_template")


def _check_pool_factor(options: EmbedOptions) -> None:
    if options.pool_factor is None:
        return
    if "multivector" not in options.outputs:
        raise InvalidRequest(
            "pool_factor merges vectors of tokens: outputs must name multivector.", param="pool_factor"
        )
    if not options.pool_factor >= 1:
        raise InvalidRequest(f"pool_factor is {options.pool_factor}; it must be at least 1.", param="pool_factor")


def _check_top_k(top_k: int | None) -> None:
    if top_k is not None and top_k < 1:
        raise InvalidRequest(f"top_k is {top_k}; it must be at least 1.", param="top_k")


def _check_size(text: str, field: str) -> None:
    size_bytes = len(text.encode())
    if size_bytes > _MAX_FIELD_BYTES:
        raise InvalidRequest(f"{field} is {size_bytes} bytes; the limit is {_MAX_FIELD_BYTES}.", param=field)


def _check_prompt(options: EmbedOptions | SimilarityOptions | TokenizeOptions, card: ModelCard) -> None:
    if options.prompt is not None:
        if options.prompt_name is not None:
            raise InvalidRequest("prompt and prompt_name exclude each other.", param="prompt")
        _check_size(options.prompt, "prompt")
    elif options.prompt_name is not None and options.prompt_name not in card.prompts:
        known = ", ".join(card.prompts) or "none"
        raise InvalidRequest(
            f"{card.id} has no prompt named {options.prompt_name[:100]!r}; it has: {known}.", param="prompt_name"
        )


def _check_dimensions(dimensions: int, card: ModelCard) -> None:
    if not card.dimensions:
        raise InvalidRequest(f"dimensions cuts dense vectors, and {card.id} gives none.", param="dimensions")
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


def check_tokens(items: Items, ask: Ask, card: ModelCard) -> None:
    """Accept token ids only where the request says that they are this model's own: others fit its range too.

    Raises:
        InvalidRequest: they are nobody's, or another model's; or they are needed and not there.
    """
    if isinstance(ask.options, TokenizeOptions):
        if items.are_tokens != ask.options.decodes:
            has, needs = ("token ids", "texts") if items.are_tokens else ("texts", "token ids")
            raise InvalidRequest(f"input holds {has}; it must hold {needs}.", param="input")
        return
    input_tokenizer = ask.input_tokenizer
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


def renamed(error: ShoalError, names: dict[str, str]) -> ShoalError:
    """The same error with the fields under the names that the surface has for them."""
    if not names:
        return error
    known = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b(?!_)")
    texts = (error.message, error.param, error.hint)
    message, param, hint = (text and known.sub(lambda found: names[found[0]], text) for text in texts)
    return type(error)(message or "", param=param, hint=hint, retry_after_s=error.retry_after_s)
