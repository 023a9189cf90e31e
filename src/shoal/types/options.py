"""What may be asked for: operations, and the options of each. They travel in a `wire.Chunk` as they are."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "Aggregation",
    "ClassifyOptions",
    "DType",
    "EmbedOptions",
    "Encoding",
    "ExtractOptions",
    "Operation",
    "Options",
    "Output",
    "Overflow",
    "Priority",
    "RerankMethod",
    "RerankOptions",
    "SimilarityFunction",
    "SimilarityOptions",
    "TokenizeOptions",
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
