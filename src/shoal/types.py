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
    "Aggregation",
    "Chunk",
    "ChunkReply",
    "ClassifyOptions",
    "DeadLetter",
    "Demand",
    "EmbedOptions",
    "EmbedReply",
    "Entity",
    "ErrorBody",
    "ExtractOptions",
    "ExtractReply",
    "Gone",
    "Lane",
    "LoadedModel",
    "ModelCard",
    "MultiVectorRows",
    "Operation",
    "Options",
    "Output",
    "Overflow",
    "Priority",
    "RankedDocument",
    "Render",
    "Rendered",
    "RerankMethod",
    "RerankOptions",
    "RerankReply",
    "SimilarityFunction",
    "SimilarityOptions",
    "SimilarityReply",
    "SparseRows",
    "StageTimes",
    "TextTokens",
    "TokenizeOptions",
    "TokenizeReply",
    "WorkerStatus",
    "decode_chunk",
    "decode_dead_letter",
    "decode_demand",
    "decode_gone",
    "decode_reply",
    "decode_status",
    "encode",
    "operation_of",
]

Operation = Literal["embed", "rerank", "classify", "extract", "similarity", "tokenize"]
"""What a request asks for. One word an operation, the same in routes, metrics and model cards."""

Output = Literal["dense", "sparse", "multivector"]
"""What embedding returns: a vector, weights of some words of the vocabulary, or a vector a token."""

RerankMethod = Literal["", "cross_encoder", "cosine", "maxsim"]
"""How a model ranks: it reads query and document together, or embeds them apart and compares their vectors, one a text
or one a token; "" = it does not."""

SimilarityFunction = Literal["", "cosine", "dot", "euclidean", "manhattan"]
"""How alike two dense vectors are, in sentence-transformers' words; distances are negative. "" = there are none."""
Aggregation = Literal["none", "simple", "first", "average", "max"]
"""How tokens become entities, see `ExtractOptions`."""

Priority = Literal["interactive", "default", "bulk"]
"""Which lane a chunk waits in."""

Overflow = Literal["error", "truncate", "chunk"]
"""What becomes of a text that is too long: refused, cut, or run in windows, of whose vectors the mean counts."""

DType = Literal["float32", "float16", "int8", "binary", "signed_binary"]
"""How one number of a vector is stored.

- `float32`, `float16`: IEEE, little-endian.
- `int8`: value ~= stored * scale, one scale a vector (max|v| / 127).
- `binary`: one bit a number, most significant first, 1 = positive; value ~= (+1 or -1) * scale, scale = mean|v|.
- `signed_binary`: as binary, each byte less 128, as some surfaces want it; never in the native reply.
"""

Encoding = Literal["json", "entries", "base64", "raw", "msgpack"]
"""How an item's result stands in a reply: JSON, whole or by entry; a JSON string of base64; numbers; MessagePack."""


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as it travels between processes; `errors.ShoalError.from_body` turns it into the right class."""

    code: str
    message: str
    param: str | None = None
    hint: str | None = None
    retry_after_s: float | None = None


class EmbedOptions(msgspec.Struct, frozen=True, array_like=True, tag="embed"):
    """What the caller wants of each vector. None means: as the model declares.

    Attributes:
        dimensions: cut a dense vector to this many numbers, then renormalise if `normalize` holds.
        normalize: L2-normalise the final dense vector; None = as the model's own modules say.
        overflow: what becomes of a text that is too long; None = the server's default.
        truncation_side: which end of a long text is dropped; None = the tokenizer's own.
        prompt_name: one of the model's own prompts, put in front of each text.
        prompt: literal text put in front of each text; excludes `prompt_name`.
        dtype: how numbers of dense and multivector outputs are stored in the reply.
        outputs: what is returned, each once.
        input_type: what the texts are, for models that treat queries and documents differently.
        top_k: keep so many of the largest weights of a sparse vector.
        threshold: keep the weights of a sparse vector that are larger.
        also_dtypes: dense vectors once more in each of these, as further outputs behind `outputs`.
        pool_factor: merge the vectors of a document's tokens into about one for so many; None = as the model declares.
    """

    dimensions: int | None = None
    normalize: bool | None = None
    overflow: Overflow | None = None
    truncation_side: Literal["left", "right"] | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    dtype: DType = "float32"
    outputs: tuple[Output, ...] = ("dense",)
    input_type: Literal["query", "document"] | None = None
    top_k: int | None = None
    threshold: float = 0.0
    also_dtypes: tuple[DType, ...] = ()
    pool_factor: float | None = None


class RerankOptions(msgspec.Struct, frozen=True, array_like=True, tag="rerank"):
    """How relevant each item, a document, is to a query.

    Attributes:
        query: what the documents are ranked for.
        raw_scores: the model's logits instead of what it declares to make of them.
        truncate: True cuts a long document (never the query), False refuses it; None = the server's default.
        truncation_side: which end of a long document is dropped; None = the tokenizer's own.
        instruction: what counts as relevant, for models that are told so; None = what the model's own files say.
    """

    query: str
    raw_scores: bool = False
    truncate: bool | None = None
    truncation_side: Literal["left", "right"] | None = None
    instruction: str | None = None


class ClassifyOptions(msgspec.Struct, frozen=True, array_like=True, tag="classify"):
    """Which of some labels each item, a text, has.

    Attributes:
        raw_scores: the model's logits instead of probabilities.
        top_k: only so many labels a text, the best; None = all.
        truncate: True cuts a long text, False refuses it; None = the server's default.
        labels: labels of the caller's own, judged by an NLI model; () = the model's.
        hypothesis_template: the sentence in which a label of the caller's own stands for `{}`.
        multi_label: judge each label of the caller's own alone, rather than as one of them.
        truncation_side: which end of a long text is dropped; None = the tokenizer's own.
    """

    raw_scores: bool = False
    top_k: int | None = None
    truncate: bool | None = None
    labels: tuple[str, ...] = ()
    hypothesis_template: str = "This example is {}."
    multi_label: bool = False
    truncation_side: Literal["left", "right"] | None = None


class SimilarityOptions(msgspec.Struct, frozen=True, array_like=True, tag="similarity"):
    """How alike each item, a text, is to one source text, by their dense vectors.

    Attributes:
        source: what the texts are compared to; it is embedded as they are.
        truncate: True cuts a long text, be it the source, False refuses it; None = the server's default.
        truncation_side, prompt_name, prompt: as in `EmbedOptions`.
    """

    source: str
    truncate: bool | None = None
    truncation_side: Literal["left", "right"] | None = None
    prompt_name: str | None = None
    prompt: str | None = None


class TokenizeOptions(msgspec.Struct, frozen=True, array_like=True, tag="tokenize"):
    """The tokens of each item, however many; or the text that an item, a list of token ids, stands for.

    Attributes:
        has_special_tokens: whether the special tokens that the model puts around a text are among its tokens, or stay
            in a text that is made of ids.
        prompt_name, prompt, input_type: as in `EmbedOptions`; but without them, no prompt stands in front.
        decodes: whether items are ids and texts are wanted.
    """

    has_special_tokens: bool = True
    prompt_name: str | None = None
    prompt: str | None = None
    input_type: Literal["query", "document"] | None = None
    decodes: bool = False


class ExtractOptions(msgspec.Struct, frozen=True, array_like=True, tag="extract"):
    """Which passages of each item, a text, are what: names of people, places, numbers of accounts.

    Attributes:
        labels: only entities with one of these; () = all.
        aggregation: how tokens become entities, in transformers' words: `none` each token by itself, `simple` adjacent
            tokens of one label, the others words first, by the label of a word's first token, of the mean or of the
            surest one.
        overflow: what becomes of a text that is too long: read in windows (`chunk`), cut, or refused; None = chunk.
        overlap_tokens: tokens that two windows share; None = a quarter of a window.
        threshold: only entities with a higher score.
    """

    labels: tuple[str, ...] = ()
    aggregation: Aggregation = "simple"
    overflow: Overflow | None = None
    overlap_tokens: int | None = None
    threshold: float = 0.0


Options = EmbedOptions | RerankOptions | ClassifyOptions | ExtractOptions | SimilarityOptions | TokenizeOptions
"""One kind an operation."""


def operation_of(options: Options) -> Operation:
    """The operation that options belong to."""
    return options.__struct_config__.tag  # type: ignore[return-value]  # the tags are the operations


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


class SparseRows(msgspec.Struct):
    """Sparse vectors, one after another.

    Attributes:
        lengths: entries a row.
        indices: int32, little-endian, ascending in each row.
        values: float32, little-endian.
    """

    lengths: list[int]
    indices: bytes
    values: bytes


class MultiVectorRows(msgspec.Struct):
    """Vectors of tokens, those of one text after those of another; numbers are stored as `EmbedReply.dtype` says.

    Attributes:
        lengths: vectors a text.
        dimensions: numbers a vector; for binary, bits.
        data: the matrix [sum of lengths, dimensions], row-major, little-endian.
        scales: for int8 and binary, a number a vector.
    """

    lengths: list[int]
    dimensions: int
    data: bytes
    scales: list[float] = []


class EmbedReply(msgspec.Struct, omit_defaults=True):
    """The native reply of /v1/embed in MessagePack: one matrix, not a list of lists.

    Attributes:
        model: the model that answered.
        num_tokens, truncated: an entry a row.
        dtype, shape, data: the dense matrix, row-major, little-endian (see `DType`); for binary, shape counts bits.
            Without a dense output, shape is (0, 0).
        scales: for int8 and binary, a number a row.
        times: `queue_ms`, `tokenize_ms`, `batch_ms`, `inference_ms`, `total_ms`.
        sparse, multivector: those vectors, if asked for.
    """

    model: str
    num_tokens: list[int]
    truncated: list[bool]
    dtype: DType = "float32"
    shape: tuple[int, int] = (0, 0)
    data: bytes = b""
    scales: list[float] = []
    times: dict[str, float] = {}
    request_id: str = ""
    profile: str = ""
    sparse: SparseRows | None = None
    multivector: MultiVectorRows | None = None


class RankedDocument(msgspec.Struct):
    """A document's place in the request, and its relevance."""

    index: int
    relevance_score: float


class RerankReply(msgspec.Struct):
    """The native reply of /v1/rerank, as far as a client needs it.

    Attributes:
        method: how the model ranks.
        results: most relevant first.
        num_tokens, truncated: an entry a document, in the request's order.
        times: as in `EmbedReply`.
    """

    model: str
    method: RerankMethod
    results: list[RankedDocument]
    num_tokens: list[int]
    truncated: list[bool]
    times: dict[str, float] = {}
    request_id: str = ""


class Entity(msgspec.Struct, frozen=True):
    """A passage of a text that is something.

    Attributes:
        label: what.
        text: the passage, as it stands in the text.
        score: how sure the model is, from 0 to 1.
        start, end: its place, in code points of the text as it was sent.
    """

    label: str
    text: str
    score: float
    start: int
    end: int


class ExtractReply(msgspec.Struct):
    """The native reply of /v1/extract.

    Attributes:
        results: each text's entities, in the order of the text.
        num_tokens, truncated: an entry a text, in the request's order.
        times: as in `EmbedReply`.
    """

    model: str
    results: list[list[Entity]]
    num_tokens: list[int]
    truncated: list[bool]
    times: dict[str, float] = {}
    request_id: str = ""


class SimilarityReply(msgspec.Struct):
    """The native reply of /v1/similarity.

    Attributes:
        function: how the model compares.
        scores, num_tokens, truncated: an entry a text, in the request's order.
        times: as in `EmbedReply`.
    """

    model: str
    function: SimilarityFunction
    scores: list[float]
    num_tokens: list[int]
    truncated: list[bool]
    times: dict[str, float] = {}
    request_id: str = ""


class TextTokens(msgspec.Struct):
    """The tokens of a text: ids, their names, their places in it (code points), and whether each was put around it."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    special: list[bool]


class TokenizeReply(msgspec.Struct):
    """The native reply of /v1/tokenize.

    Attributes:
        max_length: tokens that the model takes, special ones included.
        results, num_tokens: an entry a text, in the request's order.
        times: as in `EmbedReply`.
    """

    model: str
    max_length: int
    results: list[TextTokens]
    num_tokens: list[int]
    times: dict[str, float] = {}
    request_id: str = ""


_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_chunk = msgspec.msgpack.Decoder(Chunk).decode
decode_reply = msgspec.msgpack.Decoder(ChunkReply).decode
decode_status = msgspec.msgpack.Decoder(WorkerStatus).decode
decode_dead_letter = msgspec.msgpack.Decoder(DeadLetter).decode
decode_demand = msgspec.msgpack.Decoder(Demand).decode
decode_gone = msgspec.msgpack.Decoder(Gone).decode
