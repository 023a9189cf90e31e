"""What the native routes answer in MessagePack, and what the SDK makes its results of."""

from __future__ import annotations

import msgspec

from shoal.types.options import DType, RerankMethod, SimilarityFunction

__all__ = [
    "EmbedReply",
    "Entity",
    "ExtractReply",
    "MultiVectorRows",
    "RankedDocument",
    "RerankReply",
    "SimilarityReply",
    "SparseRows",
    "TextTokens",
    "TokenizeReply",
]


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
