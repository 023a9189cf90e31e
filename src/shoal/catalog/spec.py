"""A model's facts, once its files are understood. Plain data: it crosses to the runtime host as MessagePack."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from shoal.types import ModelCard, Operation, Output, RerankMethod, SimilarityFunction

__all__ = [
    "Classifier",
    "Dense",
    "Expansion",
    "Frame",
    "HeadLayer",
    "ModelSpec",
    "Module",
    "MultiVector",
    "Normalize",
    "Pooling",
    "PoolingMode",
    "Side",
    "Sparse",
    "Tagger",
    "TokenMerging",
    "TokenWeights",
    "Tokenization",
]

PoolingMode = Literal["cls", "mean", "max", "weighted_mean", "last_token", "mean_sqrt_len"]


class Pooling(msgspec.Struct, frozen=True, tag="pooling"):
    """Token states to one vector; several modes are concatenated in this order.

    Attributes:
        include_prompt: whether the prompt's tokens count.
    """

    modes: tuple[PoolingMode, ...]
    include_prompt: bool = True


class Dense(msgspec.Struct, frozen=True, tag="dense"):
    """y = activation(x W^T + b).

    Attributes:
        weights_file: absolute path of the tensors, `linear.weight` and `linear.bias` as a rule.
        name: what stands before the dot; "" = they are called `weight` and `bias`.
        is_alone: whether the file holds nothing else.
    """

    weights_file: str
    in_features: int
    out_features: int
    activation: Literal["identity", "tanh", "relu", "gelu", "sigmoid"]
    has_bias: bool = True
    name: str = "linear"
    is_alone: bool = True


class Normalize(msgspec.Struct, frozen=True, tag="normalize"):
    """L2, as torch.nn.functional.normalize does it: x / max(|x|, 1e-12)."""


Module = Pooling | Dense | Normalize


class HeadLayer(msgspec.Struct, frozen=True):
    """y = norm(activation(x W^T + b)), of a head that lies in the encoder's own weight files.

    Attributes:
        name: the linear layer's tensors are `name.weight` [out, in] and `name.bias`, from the files' root.
        activation: as config.json names it.
        norm: the LayerNorm's tensors are `norm.weight` and `norm.bias`; "" = there is none.
        norm_epsilon: of it.
        has_bias, norm_has_bias: whether `name.bias` and `norm.bias` are there.
        rows: of `name.weight`, those that are used, in this order; () = all.
    """

    name: str
    activation: str = "identity"
    norm: str = ""
    norm_epsilon: float = 1e-12
    has_bias: bool = True
    norm_has_bias: bool = True
    rows: tuple[int, ...] = ()


class Classifier(msgspec.Struct, frozen=True):
    """Layers over one state a text; the last one gives a logit a label.

    Attributes:
        layers: in order.
        pooling: what makes one state of a text's token states.
        labels: names, one a logit.
        function: what makes probabilities of logits: over the labels together, each alone, or nothing.
        is_ranker: whether a query and a document may be judged as a pair. With one label, its logit is the raw score;
            with two, the log-odds of the second.
        activation: what makes relevance of a raw score.
        entailment: place of the label that says that a hypothesis follows, -1 if the model judges no hypotheses.
    """

    layers: tuple[HeadLayer, ...]
    labels: tuple[str, ...]
    function: Literal["softmax", "sigmoid", "identity"] = "softmax"
    is_ranker: bool = False
    activation: Literal["sigmoid", "identity"] = "sigmoid"
    entailment: int = -1
    pooling: PoolingMode = "cls"


class Sparse(msgspec.Struct, frozen=True, tag="splade"):
    """A weight for each word of the vocabulary: log(1 + relu(logit)), pooled over all of a text's tokens (SPLADE).

    Attributes:
        layers: over each token's state.
        decoder: tensor [vocabulary, width] from the files' root that makes logits of it.
        bias: tensor [vocabulary] that is added.
        pooling: over tokens.
        num_logarithms: how often log(1 + x) is applied.
    """

    layers: tuple[HeadLayer, ...]
    decoder: str
    bias: str
    pooling: Literal["max", "sum"] = "max"
    num_logarithms: int = 1


class TokenWeights(msgspec.Struct, frozen=True, tag="token_weights"):
    """A weight for each of a text's own tokens: relu(state W^T + b), the largest one of a token that comes twice.

    Attributes:
        layer: to one number a token.
        excluded_ids: tokens that have none.
    """

    layer: Dense
    excluded_ids: tuple[int, ...] = ()


class Expansion(msgspec.Struct, frozen=True):
    """Tokens put behind a short query, whose vectors count like those of its own.

    Attributes:
        length: tokens that the query has then, special tokens included.
        token_id: what they are.
        is_attended: whether other tokens look at them; they look at the query's own in any case.
    """

    length: int
    token_id: int
    is_attended: bool = False


class Side(msgspec.Struct, frozen=True):
    """How queries, or documents, become vectors of tokens.

    Attributes:
        max_length: tokens, special tokens and prompt included.
        expansion: of short texts.
        skipped_ids: tokens that give no vector.
        num_skipped: leading tokens that give no vector.
    """

    max_length: int
    expansion: Expansion | None = None
    skipped_ids: tuple[int, ...] = ()
    num_skipped: int = 0


class TokenMerging(msgspec.Struct, frozen=True):
    """Vectors of one text merged by likeness, into about one for `factor` (sentence-transformers' token pooling).

    Attributes:
        num_protected: leading vectors that stay as they are.
        normalizes: whether the means are made unit length.
        merges_queries, merges_documents: whose.
    """

    factor: float
    num_protected: int = 1
    normalizes: bool = True
    merges_queries: bool = False
    merges_documents: bool = True


class MultiVector(msgspec.Struct, frozen=True):
    """A vector for each token that counts, compared by MaxSim: for each vector of a query the best of a document's.

    Attributes:
        modules: what follows the encoder, over each token's state, in order.
        dimensions: numbers a vector.
        query, document: the two sides.
        scoring: whether a score is the sum over the query's vectors, or their mean.
        merging: what the model's own modules merge.
    """

    modules: tuple[Dense | Normalize, ...]
    dimensions: int
    query: Side
    document: Side
    scoring: Literal["sum", "mean"] = "sum"
    merging: TokenMerging | None = None

    @property
    def is_normalized(self) -> bool:
        return bool(self.modules) and isinstance(self.modules[-1], Normalize)

    @property
    def hides_expansion(self) -> bool:
        """Whether some tokens are not looked at."""
        expansions = [side.expansion for side in (self.query, self.document)]
        return any(expansion is not None and not expansion.is_attended for expansion in expansions)


class Tagger(msgspec.Struct, frozen=True):
    """Layers over each token's state; the last one gives a logit a label.

    Attributes:
        layers: in order.
        labels: names, one a logit, as config.json has them (`B-PER`, `I-PER`, `O`).
    """

    layers: tuple[HeadLayer, ...]
    labels: tuple[str, ...]

    @property
    def entities(self) -> tuple[str, ...]:
        """What extracting returns: labels without what stands before their first hyphen, and without `O`."""
        names = (label.split("-", 1)[-1] for label in self.labels)
        return tuple(dict.fromkeys(name for name in names if name != "O"))


class Frame(msgspec.Struct, frozen=True):
    """What is written around a query and a document for a model that is asked about them.

    Attributes:
        parts: texts in order; "{query}" and "{document}" stand for the caller's. The document comes last but for one.
        instructed: the same with "{instruction}" for one of the caller's own; () = the model takes none.
    """

    parts: tuple[str, ...]
    instructed: tuple[str, ...] = ()


class Tokenization(msgspec.Struct, frozen=True):
    """How texts become ids: everything that the model's own tokenizer would do, and nothing else.

    Attributes:
        file: absolute path of tokenizer.json.
        max_length: tokens, special tokens included.
        lower: sentence-transformers' own `do_lower_case`, before the tokenizer.
        truncation_side: the tokenizer's own default.
        has_types: whether the two texts of a pair are told apart by token types.
        unknown: the token for what the vocabulary does not cover, "" for none.
        parts: sections of tokenizer.json to put in the place of its own, because the reference builds them from
            tokenizer_config.json instead (`normalizer`, `pre_tokenizer`, `post_processor`, `added_tokens`) or because
            they are not wanted (`truncation`, `padding`).
        markers: tokens of the vocabulary that are put in front of texts: each is made one token, if it would be split.
    """

    file: str
    max_length: int
    lower: bool = False
    truncation_side: Literal["left", "right"] = "right"
    has_types: bool = False
    unknown: str = ""
    parts: dict[str, Any] = {}
    markers: tuple[str, ...] = ()


class ModelSpec(msgspec.Struct, frozen=True):
    """Everything needed to serve a model, read from its directory.

    Attributes:
        id: name in requests.
        directory: absolute path of the files.
        family: row of the family table (`bert`, `roberta`, ...): names the graph.
        config: the encoder's config.json, checked key by key against the family's row, with its defaults filled in.
        weights: absolute paths of the safetensors files.
        weights_prefix: what stands before the encoder's own tensor names (`bert.`), "" for none.
        modules: what follows the encoder for a dense vector, in order; the first is a Pooling. () = it gives none.
        dimensions: numbers a dense vector after all modules.
        sparse, classifier, multivector, tagger: further heads.
        similarity: how dense vectors are compared; "" without them.
        frame: what is written around a query and a document, None = they are put together as the tokenizer says.
        code: `organisation/model@commit` of code that makes the encoder and that the operator trusts; () = none.
        is_normalized: whether the last module is Normalize.
    """

    id: str
    directory: str
    family: str
    config: dict[str, Any]
    weights: tuple[str, ...]
    tokenization: Tokenization
    modules: tuple[Module, ...]
    dimensions: int
    weights_prefix: str = ""
    prompts: dict[str, str] = {}
    default_prompt_name: str | None = None
    matryoshka_dimensions: tuple[int, ...] = ()
    aliases: tuple[str, ...] = ()
    revision: str = ""
    source: str = ""
    licence: str = ""
    vocabulary_size: int = 0
    sparse: Sparse | TokenWeights | None = None
    classifier: Classifier | None = None
    multivector: MultiVector | None = None
    similarity: SimilarityFunction = ""
    tagger: Tagger | None = None
    frame: Frame | None = None
    code: tuple[str, ...] = ()

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What embedding can return."""
        has: dict[Output, bool] = {
            "dense": bool(self.modules),
            "sparse": self.sparse is not None,
            "multivector": self.multivector is not None,
        }
        return tuple(output for output, is_there in has.items() if is_there)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What the model can do."""
        has: dict[Operation, bool] = {
            "embed": bool(self.outputs),
            "rerank": bool(self.rerank_method),
            # A model that is asked about pairs has nothing to say of a text.
            "classify": self.classifier is not None and self.frame is None,
            "extract": self.tagger is not None,
            "similarity": bool(self.similarity),
            "tokenize": True,
        }
        return tuple(operation for operation, is_there in has.items() if is_there)

    @property
    def rerank_method(self) -> RerankMethod:
        """How the model ranks."""
        if self.classifier is not None and self.classifier.is_ranker:
            return "cross_encoder"
        # Bare token states, beside the vector that they make, were not trained to be compared.
        if self.multivector is not None and (self.multivector.modules or not self.modules):
            return "maxsim"
        return "cosine" if self.modules else ""

    @property
    def labels(self) -> tuple[str, ...]:
        """What classifying or extracting can return."""
        of_texts = self.classifier.labels if self.classifier is not None and self.frame is None else ()
        return (*of_texts, *(() if self.tagger is None else self.tagger.entities))

    @property
    def is_normalized(self) -> bool:
        return bool(self.modules) and isinstance(self.modules[-1], Normalize)

    @property
    def card(self) -> ModelCard:
        """What a worker announces about this model."""
        return ModelCard(
            id=self.id,
            operations=self.operations,
            dimensions=self.dimensions,
            max_length=self.tokenization.max_length,
            aliases=self.aliases,
            matryoshka_dimensions=self.matryoshka_dimensions,
            prompts=self.prompts,
            revision=self.revision,
            source=self.source,
            licence=self.licence,
            vocabulary_size=self.vocabulary_size,
            outputs=self.outputs,
            labels=self.labels,
            rerank_method=self.rerank_method,
            multivector_dimensions=0 if self.multivector is None else self.multivector.dimensions,
            similarity=self.similarity,
            takes_instruction=self.frame is not None and bool(self.frame.instructed),
        )
