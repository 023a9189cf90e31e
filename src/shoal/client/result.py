"""What a call of the client returns. NumPy and the wire's structs; no HTTP."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shoal.client.matrices import as_float32, matrix_of
from shoal.errors import InternalError
from shoal.types import (
    DType,
    EmbedReply,
    LoadedModel,
    ModelCard,
    MultiVectorRows,
    RerankMethod,
    RerankReply,
    SparseRows,
)

__all__ = ["EmbedResult", "Health", "MultiVectorResult", "RerankResult", "ServedModel", "SparseResult", "mixed"]


@dataclasses.dataclass(frozen=True)
class Health:
    """Whether a server answers at all, and whether it is ready to serve; `message` says why not."""

    is_alive: bool
    is_ready: bool
    message: str = ""


class ServedModel(ModelCard, frozen=True):
    """A model that a server serves: its card, and whether it is `ready`, `loading`, `failed` or `cold` (not loaded).

    `loaded` says for each worker that has it ready: runtime, device, precision, costs.
    """

    state: str = ""
    loaded: tuple[LoadedModel, ...] = ()


@dataclasses.dataclass(frozen=True, repr=False)
class SparseResult:
    """Sparse vectors of some texts, one after another.

    Attributes:
        lengths: int64 [n], entries of each.
        indices: int32 [sum of lengths], words of the model's vocabulary, ascending in each vector.
        values: float32 [sum of lengths], their weights.
    """

    lengths: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        return f"<SparseResult of {len(self)} texts, {len(self.values)} entries>"

    def __getitem__(self, place: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Indices and values of one text; a CSR matrix of SciPy takes values, indices and the sums of lengths."""
        end = int(self.lengths[: range(len(self))[place] + 1].sum())
        start = end - int(self.lengths[place])
        return self.indices[start:end], self.values[start:end]

    @classmethod
    def from_rows(cls, parts: Sequence[SparseRows]) -> Self:
        """One result from the parts of a split request."""
        return cls(
            lengths=np.array([length for part in parts for length in part.lengths], np.int64),
            indices=np.frombuffer(b"".join(part.indices for part in parts), "<i4"),
            values=np.frombuffer(b"".join(part.values for part in parts), "<f4"),
        )


@dataclasses.dataclass(frozen=True, repr=False)
class MultiVectorResult:
    """Vectors of the tokens of some texts, one after another.

    Attributes:
        lengths: int64 [n], vectors of each text.
        dtype, dimensions, stored, scales: as in `EmbedResult`, a row a vector.
    """

    lengths: npt.NDArray[np.int64]
    dtype: DType
    dimensions: int
    stored: npt.NDArray[Any]
    scales: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        return f"<MultiVectorResult of {len(self)} texts, {len(self.stored)} x {self.dimensions} {self.dtype}>"

    @cached_property
    def vectors(self) -> npt.NDArray[np.float32]:
        """float32 [sum of lengths, dimensions], whatever `dtype` was."""
        return as_float32(self.stored, self.dtype, self.dimensions, self.scales)

    def __getitem__(self, place: int) -> npt.NDArray[np.float32]:
        """The vectors of one text: float32 [its length, dimensions]."""
        end = int(self.lengths[: range(len(self))[place] + 1].sum())
        return self.vectors[end - int(self.lengths[place]) : end]

    @classmethod
    def from_rows(cls, parts: Sequence[MultiVectorRows], dtype: DType) -> Self:
        """One result from the parts of a split request.

        Raises:
            InternalError: a matrix has not the size that it states, or the parts do not fit together.
        """
        dimensions = parts[0].dimensions
        if any(part.dimensions != dimensions for part in parts):
            raise mixed()
        return cls(
            lengths=np.array([length for part in parts for length in part.lengths], np.int64),
            dtype=dtype,
            dimensions=dimensions,
            stored=np.concatenate([matrix_of(part.data, dtype, sum(part.lengths), dimensions) for part in parts]),
            scales=np.asarray([scale for part in parts for scale in part.scales], np.float32),
        )


@dataclasses.dataclass(frozen=True, repr=False)
class RerankResult:
    """Documents by their relevance.

    Attributes:
        model: the model that answered.
        method: `cross_encoder` if it read query and document together, `cosine` if it compared their vectors, `maxsim`
            if it compared those of their tokens.
        scores: float32 [n], in the order of the documents.
        order: int64 [n or top_n], places of the documents, most relevant first.
        num_tokens, truncated: of each document, in their order.
        times, request_ids: as in `EmbedResult`.
    """

    model: str
    method: RerankMethod
    scores: npt.NDArray[np.float32]
    order: npt.NDArray[np.int64]
    num_tokens: list[int]
    truncated: list[bool]
    times: dict[str, float]
    request_ids: list[str]

    def __repr__(self) -> str:
        documents = f"{len(self.scores)} documents, {len(self.order)} in order"
        return f"<RerankResult of {self.model}: {documents}, {self.method}, {sum(self.num_tokens)} tokens>"

    @property
    def best(self) -> list[tuple[int, float]]:
        """(place, score) of each document in `order`."""
        return [(int(place), float(self.scores[place])) for place in self.order]

    @classmethod
    def from_replies(cls, replies: Sequence[RerankReply], top_n: int | None) -> Self:
        """One ranking from the replies to one or more requests, in order.

        Raises:
            InternalError: the replies do not fit together.
        """
        first = replies[0]
        if len({(reply.model, reply.method) for reply in replies}) > 1:
            raise mixed()
        scores = np.concatenate([_scores(reply) for reply in replies])
        return cls(
            model=first.model,
            method=first.method,
            scores=scores,
            order=np.argsort(-scores, kind="stable")[:top_n],
            num_tokens=[number for reply in replies for number in reply.num_tokens],
            truncated=[flag for reply in replies for flag in reply.truncated],
            times={stage: sum(reply.times.get(stage, 0.0) for reply in replies) for stage in first.times},
            request_ids=[reply.request_id for reply in replies],
        )


def _scores(reply: RerankReply) -> npt.NDArray[np.float32]:
    """In the order of the documents."""
    scores = np.full(len(reply.num_tokens), np.nan, np.float32)
    for row in reply.results:
        scores[row.index] = row.relevance_score
    return scores


def mixed() -> InternalError:
    """The error for parts that do not fit together."""
    return InternalError(
        "The parts of a split request came back from different models.",
        hint="The server was changed meanwhile: send the texts again.",
    )


@dataclasses.dataclass(frozen=True, repr=False)
class EmbedResult:
    """Vectors of some texts, in the order of the texts.

    Attributes:
        model: the model that answered.
        dtype: how the numbers were sent.
        dimensions: numbers a vector.
        stored: the numbers as sent: float32, float16 or int8 [n, dimensions]; for binary uint8
            [n, ceil(dimensions / 8)], most significant bit first.
        scales: float32 [n] for int8 and binary, otherwise empty.
        num_tokens: tokens really run for each text, special tokens included, after truncation.
        truncated: whether each text was cut.
        times: milliseconds by stage (`queue_ms`, `tokenize_ms`, `batch_ms`, `inference_ms`, `total_ms`), summed over
            the requests that the call was split into.
        request_ids: the ids of those requests, as the server's log has them.
        sparse, multivector: those vectors, if they were asked for; without dense ones, `stored` and `vectors` are
            empty.
    """

    model: str
    dtype: DType
    dimensions: int
    stored: npt.NDArray[Any]
    scales: npt.NDArray[np.float32]
    num_tokens: list[int]
    truncated: list[bool]
    times: dict[str, float]
    request_ids: list[str]
    sparse: SparseResult | None = None
    multivector: MultiVectorResult | None = None

    def __len__(self) -> int:
        return len(self.num_tokens)

    def __repr__(self) -> str:
        numbers = f"{len(self)} x {self.dimensions} {self.dtype}"
        sparse = f", sparse with {len(self.sparse.values)} entries" if self.sparse is not None else ""
        tokens = f", {len(self.multivector.stored)} of tokens" if self.multivector is not None else ""
        return f"<EmbedResult of {self.model}: {numbers}{sparse}{tokens}, {self.total_tokens} tokens>"

    @cached_property
    def vectors(self) -> npt.NDArray[np.float32]:
        """float32 [n, dimensions], whatever `dtype` was: int8 and binary are multiplied out with their scales."""
        return as_float32(self.stored, self.dtype, self.dimensions, self.scales)

    @property
    def total_tokens(self) -> int:
        """Tokens of all texts together."""
        return sum(self.num_tokens)

    @classmethod
    def from_replies(cls, replies: Sequence[EmbedReply]) -> Self:
        """One result from the replies to one or more requests, in order.

        Raises:
            InternalError: a matrix has not the size that it states, or the replies do not fit together.
        """
        first = replies[0]
        kinds = {(reply.model, reply.dtype, reply.shape[1]) for reply in replies}
        if len(kinds) > 1:
            raise mixed()
        sparse = [reply.sparse for reply in replies if reply.sparse is not None]
        multivector = [reply.multivector for reply in replies if reply.multivector is not None]
        return cls(
            model=first.model,
            dtype=first.dtype,
            dimensions=first.shape[1],
            stored=np.concatenate([matrix_of(reply.data, reply.dtype, *reply.shape) for reply in replies]),
            scales=np.asarray([scale for reply in replies for scale in reply.scales], dtype=np.float32),
            num_tokens=[number for reply in replies for number in reply.num_tokens],
            truncated=[flag for reply in replies for flag in reply.truncated],
            times={stage: sum(reply.times.get(stage, 0.0) for reply in replies) for stage in first.times},
            request_ids=[reply.request_id for reply in replies],
            sparse=SparseResult.from_rows(sparse) if sparse else None,
            multivector=MultiVectorResult.from_rows(multivector, first.dtype) if multivector else None,
        )
