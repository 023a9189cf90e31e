"""Cuts a request into chunks, and writes each when it is published: pure, no I/O."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from shoal.errors import TooLarge
from shoal.gateway.ask import Ask
from shoal.gateway.items import Items
from shoal.types import (
    Chunk,
    ClassifyOptions,
    EmbedOptions,
    ExtractOptions,
    ModelCard,
    Options,
    Priority,
    RerankOptions,
    SimilarityOptions,
    TokenizeOptions,
    encode,
)

__all__ = ["Chunks", "cut", "estimated_tokens"]

_ENVELOPE_BYTES = 32 * 1024
"""Room for the rest of a chunk or reply, beside its items and options."""


class Chunks:
    """The chunks of one request.

    Attributes:
        costs: estimated tokens of each.

    Args:
        max_message_bytes: what a message may hold, be it chunk or reply.
        reply_to: address of the gateway's inbox.
        deadline, waiting_since: Unix times in seconds.
    """

    __slots__ = (
        "_ask",
        "_deadline",
        "_items",
        "_model",
        "_options",
        "_parts",
        "_reply_to",
        "_tenant",
        "_waiting_since",
        "costs",
        "request_id",
    )

    def __init__(
        self,
        ask: Ask,
        options: Options,
        card: ModelCard,
        items: Items,
        *,
        quantum_tokens: int,
        max_message_bytes: int,
        request_id: str,
        reply_to: str,
        tenant: str,
        deadline: float,
        waiting_since: float,
    ) -> None:
        limit_bytes = max_message_bytes - _ENVELOPE_BYTES - len(encode(options))
        sizes = [len(item) for item in items.raw]
        self._parts = cut(
            sizes,
            quantum_tokens=quantum_tokens,
            max_length=sys.maxsize if _is_run_whole(options) else card.max_length,
            max_chunk_bytes=limit_bytes // max(1, _bytes_per_token(ask, options, card)),
            max_chunk_items=max(1, limit_bytes // _reply_bytes(ask, options, card)),
            shared_bytes=_shared_bytes(options),
            runs_per_item=max(1, len(options.labels)) if isinstance(options, ClassifyOptions) else 1,
        )
        if max(sizes) > limit_bytes:
            _refuse_unsendable(sizes, limit_bytes)
        self.costs = [tokens for _, _, tokens in self._parts]
        self.request_id = request_id
        self._ask = ask
        self._options = options
        self._model = card.id
        self._items = items
        self._reply_to = reply_to
        self._tenant = tenant
        self._deadline = deadline
        self._waiting_since = waiting_since

    def write(self, index: int, priority: Priority) -> tuple[str, bytes]:
        """The id and the body of a chunk."""
        start, stop, tokens = self._parts[index]
        chunk = Chunk(
            request_id=self.request_id,
            index=index,
            model=self._model,
            options=self._options,
            items=self._items.pack(start, stop),
            items_format=self._items.format,
            num_items=stop - start,
            first_item=start,
            estimated_tokens=tokens,
            reply_to=self._reply_to,
            renders=self._ask.renders,
            deadline=self._deadline,
            tenant=self._tenant,
            priority=priority,
            published_at=self._waiting_since,
        )
        return chunk.chunk_id, encode(chunk)


def estimated_tokens(size_bytes: int, max_length: int) -> int:
    """What an item may cost: a quarter of its bytes, never more than the model takes. The worker counts truly."""
    return min(size_bytes // 4 + 1, max_length)


def cut(
    sizes_bytes: Sequence[int],
    *,
    quantum_tokens: int,
    max_length: int,
    max_chunk_bytes: int,
    max_chunk_items: int,
    shared_bytes: int = 0,
    runs_per_item: int = 1,
) -> list[tuple[int, int, int]]:
    """Chunks as (start, stop, estimated tokens), in order, each about one quantum and at least one item.

    Args:
        sizes_bytes: size of each item.
        quantum_tokens: what a worker runs at once.
        max_length: tokens of the longest item that the model takes.
        max_chunk_bytes: what one message may hold; an item beyond it gets a chunk of its own.
        max_chunk_items: as many replies fit one message.
        shared_bytes: size of what is put to each item, as a query is.
        runs_per_item: how often each item is run, as for each label of the caller's own.
    """
    chunks = []
    start = tokens = chunk_bytes = 0
    for index, size_bytes in enumerate(sizes_bytes):
        cost = runs_per_item * estimated_tokens(size_bytes + shared_bytes, max_length)
        is_full = (
            tokens + cost > quantum_tokens
            or chunk_bytes + size_bytes + 1 > max_chunk_bytes
            or index - start >= max_chunk_items
        )
        if is_full and index > start:
            chunks.append((start, index, tokens))
            start, tokens, chunk_bytes = index, 0, 0
        tokens += cost
        chunk_bytes += size_bytes + 1
    chunks.append((start, len(sizes_bytes), tokens))
    return chunks


def _shared_bytes(options: Options) -> int:
    """Bytes of the text that is put to each item."""
    match options:
        case RerankOptions():
            return len(options.query)
        case SimilarityOptions():
            return len(options.source)
    return 0


def _is_run_whole(options: Options) -> bool:
    """Whether nothing of a text is cut away, however long it is."""
    match options:
        case TokenizeOptions():
            return True
        case EmbedOptions():
            return options.overflow == "chunk"
        case ExtractOptions():
            return options.overflow in (None, "chunk")
    return False


_NUMBER_BYTES = {"json": 25, "entries": 35, "base64": 6, "raw": 4, "msgpack": 9}
_SPARSE_ENTRIES = 2048
"""Expected of a sparse vector at most, where the request does not say."""
_LABEL_BYTES = 64
_TOKEN_BYTES = 96
"""Of a token in a reply at most; a text may have one a byte."""
_ENTITIES, _ENTITY_BYTES = 64, 160
"""Expected of a text at most, and what one takes."""


_LEAST_VECTORS = 40
"""Of a text's tokens where each has one, however short it is: special tokens, and a query's expansion as a rule."""


def _bytes_per_token(ask: Ask, options: Options, card: ModelCard) -> int:
    """An upper bound for what each token of a text adds to a reply; a text may have one a byte."""
    if isinstance(options, TokenizeOptions):
        return _TOKEN_BYTES
    if not isinstance(options, EmbedOptions) or "multivector" not in options.outputs:
        return 0
    encoding = ask.renders[options.outputs.index("multivector")].encoding
    return _NUMBER_BYTES[encoding] * (card.multivector_dimensions + 2)


def _reply_bytes(ask: Ask, options: Options, card: ModelCard) -> int:
    """An upper bound for one item of a reply."""
    total = 64 + _LEAST_VECTORS * _bytes_per_token(ask, options, card)
    for place, render in enumerate(ask.renders):
        number_bytes = _NUMBER_BYTES[render.encoding]
        total += len(render.before) + len(render.between) + len(render.after)
        match options:
            case EmbedOptions() if options.outputs[place : place + 1] == ("sparse",):
                total += 2 * number_bytes * (options.top_k or _SPARSE_ENTRIES)
            case EmbedOptions():
                total += number_bytes * (options.dimensions or card.dimensions)
            case ClassifyOptions():
                labels = options.labels or card.labels
                total += sum(_LABEL_BYTES + 6 * len(label) for label in labels)
            case RerankOptions() | SimilarityOptions():
                total += number_bytes
            case TokenizeOptions():
                total += _TOKEN_BYTES
            case ExtractOptions():
                total += _ENTITIES * max((_ENTITY_BYTES + len(label) for label in card.labels), default=0)
    return total


def _refuse_unsendable(sizes: Sequence[int], limit_bytes: int) -> None:
    index = next(index for index, size_bytes in enumerate(sizes) if size_bytes > limit_bytes)
    raise TooLarge(
        f"input[{index}] is {sizes[index]} bytes as sent; the queue carries at most {limit_bytes} in a message.",
        param=f"input[{index}]",
    )
