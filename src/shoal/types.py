"""The wire, in one place: what gateway, queue, worker and client say to each other, and the SDK's public types.

All are msgspec structs. This file imports nothing of Shoal, does no I/O and holds no policy.

Between processes everything is MessagePack: `encode` and `decode_*` below are the only codecs. Structs that cross the
queue for every request are arrays on the wire (`array_like`), so that a field name costs nothing; append fields at the
end, with a default, and old and new processes understand each other.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "Chunk",
    "ChunkReply",
    "Demand",
    "EmbedOptions",
    "EmbedReply",
    "ErrorBody",
    "Lane",
    "LoadedModel",
    "ModelCard",
    "Priority",
    "Render",
    "StageTimes",
    "WorkerStatus",
    "decode_chunk",
    "decode_demand",
    "decode_reply",
    "decode_status",
    "encode",
]

Operation = Literal["embed"]
"""What a request asks for. One word an operation, the same in routes, metrics and model cards."""

Priority = Literal["interactive", "default", "bulk"]
"""Which lane a chunk waits in."""

DType = Literal["float32", "float16", "int8", "binary"]
"""How one number of a vector is stored.

- `float32`, `float16`: IEEE, little-endian.
- `int8`: value ~= stored * scale, one scale a vector (max|v| / 127).
- `binary`: one bit a number, most significant first, 1 = positive; value ~= (+1 or -1) * scale, scale = mean|v|.
"""

VectorEncoding = Literal["json", "base64", "raw"]
"""How a vector stands in a reply body: JSON numbers, a JSON string of base64, or the bare bytes."""


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as it travels between processes; `errors.ShoalError.from_body` turns it into the right class."""

    code: str
    message: str
    param: str | None = None
    hint: str | None = None
    retry_after_s: float | None = None


class EmbedOptions(msgspec.Struct, frozen=True, array_like=True):
    """What the caller wants of each vector. None means: as the model declares.

    Attributes:
        dimensions: cut to this many numbers, then renormalise if `normalize` holds.
        normalize: L2-normalise the final vector; None = as the model's own modules say.
        truncate: True cuts a long text, False refuses it; None = the server's default.
        truncation_side: which end of a long text is dropped; None = the tokenizer's own.
        prompt_name: one of the model's own prompts, put in front of each text.
        prompt: literal text put in front of each text; excludes `prompt_name`.
        dtype: how numbers are stored in the reply.
    """

    dimensions: int | None = None
    normalize: bool | None = None
    truncate: bool | None = None
    truncation_side: Literal["left", "right"] | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    dtype: DType = "float32"


class Render(msgspec.Struct, frozen=True, array_like=True):
    """How the worker writes one item of the reply, so that the gateway only joins bytes.

    An item is `before + index + between + vector + after`, items are joined by `,`. With `encoding="raw"` the four
    pieces are ignored and the vectors' bytes are concatenated. `index` is the item's place in the whole request and is
    left out together with `between` when `has_index` is False.
    """

    encoding: VectorEncoding = "json"
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
        operation: what to do.
        options: the caller's options.
        items: the items as the client sent them: one JSON or MessagePack array, never decoded by the gateway.
        items_format: which of the two.
        num_items: length of that array.
        first_item: place of its first item in the request.
        estimated_tokens: bytes / 4: for backlog only, the worker counts truly.
        reply_to: address of the gateway's inbox.
        render: how to write the reply.
        deadline: Unix time in seconds after which nobody waits any more.
        tenant: who asks; "" without keys.
        priority: lane.
        lora: name of the LoRA to apply, "" for the base model.
        published_at: Unix time in seconds, gateway's clock.
    """

    request_id: str
    index: int
    model: str
    operation: Operation
    options: EmbedOptions
    items: bytes
    items_format: Literal["json", "msgpack"]
    num_items: int
    first_item: int
    estimated_tokens: int
    reply_to: str
    render: Render
    deadline: float
    tenant: str = ""
    priority: Priority = "default"
    lora: str = ""
    published_at: float = 0.0

    @property
    def chunk_id(self) -> str:
        """Same for a chunk published twice: makes a second reply harmless."""
        return f"{self.request_id}.{self.index}"


class StageTimes(msgspec.Struct, frozen=True, array_like=True):
    """Where the time of a chunk went, in seconds: waiting, tokenising, waiting prepared for the device, on it."""

    queue_s: float = 0.0
    tokenize_s: float = 0.0
    batch_s: float = 0.0
    inference_s: float = 0.0


class ChunkReply(msgspec.Struct, frozen=True, array_like=True):
    """The worker's answer to one chunk: rendered bytes, or one error.

    Attributes:
        request_id, index: as in the chunk.
        body: the rendered items (see `Render`); b"" with an error.
        num_tokens: tokens really run, a number an item, special tokens included, after truncation.
        truncated: whether each item was cut.
        scales: for int8 and binary, what decodes each vector; else empty.
        dimensions: numbers a vector.
        times: where the time went.
        profile: the tuning profile that served, "" for none.
        error: set instead of a body; `param` names the item in the request's own numbering.
    """

    request_id: str
    index: int
    body: bytes = b""
    num_tokens: list[int] = []
    truncated: list[bool] = []
    scales: list[float] = []
    dimensions: int = 0
    times: StageTimes = StageTimes()
    profile: str = ""
    error: ErrorBody | None = None


class ModelCard(msgspec.Struct, frozen=True, omit_defaults=True):
    """What may be said about a model without loading it; a worker announces one for each model it can serve.

    Attributes:
        id: name in requests.
        aliases: other names that mean the same model.
        operations: what it does.
        dimensions: numbers a vector.
        matryoshka_dimensions: lengths it was trained to be cut to; empty = it may not be cut.
        max_length: tokens, special tokens included.
        prompts: the model's own prompts by name.
        revision, source, licence: where it came from; "" where unknown.
        vocabulary_size: of its tokenizer.
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


class LoadedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model's state in one worker: `state`, and once ready the measured cost model S(tokens) = a + c * tokens."""

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


class WorkerStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's announcement to gateways: at start, on each change, every few seconds; `leaving` is the last one."""

    worker_id: str
    pool: str
    cards: tuple[ModelCard, ...]
    models: tuple[LoadedModel, ...]
    backlog_s: float = 0.0
    interval_s: float = 2.0
    leaving: bool = False
    sent_at: float = 0.0


class Demand(msgspec.Struct, frozen=True, omit_defaults=True):
    """Spoken on the demand address when a model is wanted that no worker has loaded.

    A gateway asks (`kind="wanted"`), workers that could load it bid with their free memory (`"bid"`), the gateway
    names one (`"chosen"`). Once a model, not once a request.
    """

    kind: Literal["wanted", "bid", "chosen"]
    model: str
    worker_id: str = ""
    free_bytes: int = 0


class Lane(msgspec.Struct, frozen=True):
    """Where chunks wait: one for each (pool, base model, priority)."""

    pool: str
    model: str
    priority: Priority = "default"


class EmbedReply(msgspec.Struct, omit_defaults=True):
    """The native reply of /v1/embed in MessagePack: one matrix, not a list of lists.

    Attributes:
        model: the model that answered.
        dtype, shape, data: the matrix, row-major, little-endian (see `DType`); for binary, shape counts bits.
        scales: for int8 and binary, a number a row.
        num_tokens, truncated: an entry a row.
        times: `queue_ms`, `tokenize_ms`, `batch_ms`, `inference_ms`, `total_ms`.
    """

    model: str
    dtype: DType
    shape: tuple[int, int]
    data: bytes
    num_tokens: list[int]
    truncated: list[bool]
    scales: list[float] = []
    times: dict[str, float] = {}
    request_id: str = ""
    profile: str = ""


_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_chunk = msgspec.msgpack.Decoder(Chunk).decode
decode_reply = msgspec.msgpack.Decoder(ChunkReply).decode
decode_status = msgspec.msgpack.Decoder(WorkerStatus).decode
decode_demand = msgspec.msgpack.Decoder(Demand).decode
