"""What gateway, queue and worker say to each other.

Between processes everything is MessagePack: `encode` and `decode_*` below are the only codecs. Structs that cross the
queue for every request are arrays on the wire (`array_like`), so that a field name costs nothing; append fields at the
end, with a default, and old and new processes understand each other.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shoal.types.options import (
    Encoding,
    Operation,
    Options,
    Output,
    Priority,
    RerankMethod,
    SimilarityFunction,
    operation_of,
)

__all__ = [
    "Chunk",
    "ChunkReply",
    "DeadLetter",
    "Demand",
    "ErrorBody",
    "Gone",
    "Lane",
    "LoadedModel",
    "ModelCard",
    "Render",
    "Rendered",
    "StageTimes",
    "WorkerStatus",
    "decode_chunk",
    "decode_dead_letter",
    "decode_demand",
    "decode_gone",
    "decode_reply",
    "decode_status",
    "encode",
]


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as it travels between processes; `errors.ShoalError.from_body` turns it into the right class."""

    code: str
    message: str
    param: str | None = None
    hint: str | None = None
    retry_after_s: float | None = None


class Render(msgspec.Struct, frozen=True, array_like=True):
    """How the worker writes one item of one output of the reply, so that the gateway only joins bytes.

    An item is `before + index + between + result + after`, items are joined by `,`. With `encoding` "raw" or "msgpack"
    the four pieces are ignored and the items' bytes are concatenated. `index` is the item's place in the whole request
    and is left out together with `between` when `has_index` is False.

    Results, by what they are:
        dense: json a list of numbers, base64 and raw the row's bytes.
        multivector: json a list of such lists, base64 `{"shape":[rows,dimensions],"data":".."}`, raw the rows' bytes.
        sparse: json `{"indices":[..],"values":[..]}`, entries `[{"index":..,"value":..},..]`; raw all int32 indices of
            the chunk, then all float32 values.
        scores: raw float32.
        labels: json and msgpack a list of `{"label":..,"score":..}`, best first.
        tokens: json and msgpack `{"ids":[..],"tokens":[..],"offsets":[[..]],"special":[..]}`, entries
            `[{"id":..,"text":..,"special":..,"start":..,"stop":..}]`.
        texts: json a string.
        entities: json and msgpack a list of `{"label":..,"text":..,"score":..,"start":..,"end":..}`, in the order of
            the text; places are code points of the text as it was sent.
    """

    encoding: Encoding = "json"
    before: bytes = b""
    has_index: bool = False
    between: bytes = b""
    after: bytes = b""


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """The items of one queue message: about one quantum of work.

    Attributes:
        request_id: the gateway's id of the request (also the X-Request-Id header).
        index: which chunk of the request this is, from 0.
        model: id of the base model, as in its model card.
        options: the caller's options; their kind says what to do.
        items: the items as the client sent them: one JSON or MessagePack array, never decoded by the gateway.
        items_format: which of the two.
        num_items: length of that array.
        first_item: place of its first item in the request.
        estimated_tokens: bytes / 4: for backlog only, the worker counts truly.
        reply_to: address of the gateway's inbox.
        renders: how to write the reply, one for each output.
        deadline: Unix time in seconds after which nobody waits any more.
        tenant: who asks; "" without keys.
        priority: lane.
        lora: name of the LoRA to apply, "" for the base model.
        published_at: Unix time in seconds, gateway's clock.
    """

    request_id: str
    index: int
    model: str
    options: Options
    items: bytes
    items_format: Literal["json", "msgpack"]
    num_items: int
    first_item: int
    estimated_tokens: int
    reply_to: str
    renders: tuple[Render, ...]
    deadline: float
    tenant: str = ""
    priority: Priority = "default"
    lora: str = ""
    published_at: float = 0.0

    @property
    def chunk_id(self) -> str:
        """Same for a chunk published twice: makes a second reply harmless."""
        return f"{self.request_id}.{self.index}"

    @property
    def operation(self) -> Operation:
        """What to do."""
        return operation_of(self.options)


class StageTimes(msgspec.Struct, frozen=True, array_like=True):
    """Where the time of a chunk went, in seconds: waiting, tokenising, waiting prepared for the device, on it."""

    queue_s: float = 0.0
    tokenize_s: float = 0.0
    batch_s: float = 0.0
    inference_s: float = 0.0


class Rendered(msgspec.Struct, frozen=True, array_like=True):
    """One output of a chunk.

    Attributes:
        body: the rendered items (see `Render`).
        dimensions: numbers a vector.
        scales: for int8 and binary, what decodes each vector; else empty.
        lengths: of ragged outputs, entries or vectors an item; else empty.
    """

    body: bytes
    dimensions: int = 0
    scales: list[float] = []
    lengths: list[int] = []


class ChunkReply(msgspec.Struct, frozen=True, array_like=True):
    """The worker's answer to one chunk: rendered outputs, or one error.

    Attributes:
        request_id, index: as in the chunk.
        outputs: one for each of the chunk's renders; none with an error.
        num_tokens: tokens really run, a number an item, special tokens included, after truncation.
        truncated: whether each item was cut.
        times: where the time went.
        profile: the tuning profile that served, "" for none.
        error: set instead of outputs; `param` names the item as `input[i]`, in the request's own numbering.
    """

    request_id: str
    index: int
    outputs: list[Rendered] = []
    num_tokens: list[int] = []
    truncated: list[bool] = []
    times: StageTimes = StageTimes()
    profile: str = ""
    error: ErrorBody | None = None


class ModelCard(msgspec.Struct, frozen=True, omit_defaults=True):
    """What may be said about a model without loading it; a worker announces one for each model it can serve.

    Attributes:
        id: name in requests.
        aliases: other names that mean the same model.
        operations: what it does.
        dimensions: numbers a dense vector; 0 = it has none.
        matryoshka_dimensions: lengths it was trained to be cut to; empty = it may not be cut.
        max_length: tokens, special tokens included.
        prompts: the model's own prompts by name.
        revision, source, licence: where it came from; "" where unknown.
        vocabulary_size: of its tokenizer.
        outputs: what embedding can return.
        labels: what classifying or extracting can return.
        rerank_method: how it ranks.
        multivector_dimensions: numbers a token's vector; 0 = it has none.
        similarity: how its dense vectors are compared.
        takes_instruction: whether ranking can be told what counts as relevant.
    """

    id: str
    operations: tuple[Operation, ...]
    dimensions: int
    max_length: int
    aliases: tuple[str, ...] = ()
    matryoshka_dimensions: tuple[int, ...] = ()
    prompts: dict[str, str] = {}
    revision: str = ""
    source: str = ""
    licence: str = ""
    vocabulary_size: int = 0
    outputs: tuple[Output, ...] = ("dense",)
    labels: tuple[str, ...] = ()
    rerank_method: RerankMethod = ""
    multivector_dimensions: int = 0
    similarity: SimilarityFunction = ""
    takes_instruction: bool = False


class LoadedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model's state in one worker: `state`, and once ready the measured cost model S(tokens) = a + c * tokens.

    `loading` is also one that waits for room in the worker's memory; `bytes_in_use` is what its weights take there.
    `version` is that of the runtime's library, `drift` how much longer a batch takes than `profile` says, as a share.
    """

    id: str
    state: Literal["loading", "ready", "failed"]
    a_s: float = 0.0
    c_s: float = 0.0
    quantum_tokens: int = 0
    load_s: float = 0.0
    runtime: str = ""
    device: str = ""
    precision: str = ""
    profile: str = ""
    error: ErrorBody | None = None
    bytes_in_use: int = 0
    version: str = ""
    drift: float = 0.0


class WorkerStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's announcement to gateways, every few seconds and on each change; `leaving` is the last one.

    It says what has changed. All that there is to say (the whole) comes at the start and to who says hello, in several
    parts if there are many models.

    Attributes:
        cards, models: of the whole those in this part, else those that are new or have changed.
        backlog_s: seconds of work on loan.
        interval_s: the next announcement comes after so long at the latest.
        sent_at: Unix time in seconds.
        revision: grows with each change, and is larger in a later life of the worker; 0 = not counted.
        since: the revision that this adds to; 0 = it is the whole, or a part of it.
        unloaded: ids of models that have no state any more.
        part, num_parts: of the whole, from 0.
    """

    worker_id: str
    pool: str
    cards: tuple[ModelCard, ...]
    models: tuple[LoadedModel, ...]
    backlog_s: float = 0.0
    interval_s: float = 2.0
    leaving: bool = False
    sent_at: float = 0.0
    revision: int = 0
    since: int = 0
    unloaded: tuple[str, ...] = ()
    part: int = 0
    num_parts: int = 1


class Demand(msgspec.Struct, frozen=True, omit_defaults=True):
    """Spoken on the demand address when a model is wanted that no worker has loaded.

    A gateway asks (`kind="wanted"`), workers that could load it bid (`"bid"`), the gateway names one (`"chosen"`).
    Once a model, not once a request. `free_bytes` of a bid is what would stay free with the model loaded; below zero,
    what would have to be evicted for it.
    """

    kind: Literal["wanted", "bid", "chosen"]
    model: str
    worker_id: str = ""
    free_bytes: int = 0


class Gone(msgspec.Struct, frozen=True, array_like=True):
    """Said by a gateway on the address `gone.<pool>`: nobody waits for these requests any more.

    Work of theirs may be dropped wherever it is, without a reply; several requests share a message.

    Attributes:
        request_ids: as in `Chunk.request_id`.
    """

    request_ids: tuple[str, ...]


class DeadLetter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A chunk that was given up for good, as an operator sees it.

    Attributes:
        request_id, index, model, operation, tenant, priority, num_items, first_item: as in the chunk.
        num_bytes: of its items as sent.
        digest: SHA-256 of its items as sent, in hexadecimal digits.
        reason: `crashed`, an item of it killed the runtime host again and again; `undelivered`, it came back from
            workers too often.
        error: what its caller was told.
        num_deliveries: how often it was on loan.
        worker_id: who gave it up.
        buried_at: Unix time in seconds.
        chunk: the encoded chunk, if the operator keeps bodies; else empty.
    """

    request_id: str
    index: int
    model: str
    operation: Operation
    tenant: str
    priority: Priority
    num_items: int
    first_item: int
    num_bytes: int
    digest: str
    reason: Literal["crashed", "undelivered"]
    error: ErrorBody
    num_deliveries: int
    worker_id: str
    buried_at: float
    chunk: bytes = b""


class Lane(msgspec.Struct, frozen=True):
    """Where chunks wait: one for each (pool, base model, priority)."""

    pool: str
    model: str
    priority: Priority = "default"


_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_chunk = msgspec.msgpack.Decoder(Chunk).decode
decode_reply = msgspec.msgpack.Decoder(ChunkReply).decode
decode_status = msgspec.msgpack.Decoder(WorkerStatus).decode
decode_dead_letter = msgspec.msgpack.Decoder(DeadLetter).decode
decode_demand = msgspec.msgpack.Decoder(Demand).decode
decode_gone = msgspec.msgpack.Decoder(Gone).decode
