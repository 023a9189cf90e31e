"""Multivector models from their own files: those of sentence-transformers' MultiVectorEncoder, of PyLate (which saves a
Transformer and a Dense, and says the rest in config_sentence_transformers.json), of Stanford's ColBERT (which has
artifact.metadata and a tensor `linear.weight`), and bge-m3's head beside a dense model.

What the first two files leave unsaid is as sentence-transformers loads them. Knows files and keys, no graph.
"""

from __future__ import annotations

import string
from typing import Any, Literal

import msgspec

from shoal.catalog.encoders import Encoder
from shoal.catalog.files import ModelFiles, refusal
from shoal.catalog.modules import Chain
from shoal.catalog.sides import SideReader
from shoal.catalog.spec import Dense, MultiVector, Normalize, Side, Tokenization, TokenWeights
from shoal.catalog.token_modules import read_token_modules
from shoal.catalog.weights import require_shape, tensor_shapes

__all__ = ["STATED_KEYS", "read_colbert", "read_m3_heads", "states_multivector"]

Json = dict[str, Any]

_STATED = "config_sentence_transformers.json"
_METADATA = "artifact.metadata"
_PREFIXES = {"query": "query_prefix", "document": "document_prefix"}
STATED_KEYS = frozenset(
    (
        *_PREFIXES.values(),
        "query_length",
        "document_length",
        "query_expansion",
        "do_query_expansion",
        "attend_to_expansion_tokens",
        "attend_to_mask_tokens",
        "skiplist_words",
    )
)
"""Keys of config_sentence_transformers.json that only such a model has."""

_PUNCTUATION = list(string.punctuation)


class Colbert(msgspec.Struct, frozen=True):
    """What a model's files say: its head, how its texts become tokens, and its prompts."""

    head: MultiVector
    tokenization: Tokenization
    prompts: dict[str, str]


def states_multivector(stated: Json) -> bool:
    """Whether config_sentence_transformers.json is that of a multivector model."""
    return stated.get("model_type") in ("MultiVectorEncoder", "ColBERT") or bool(STATED_KEYS & set(stated))


def read_colbert(files: ModelFiles, chain: Chain, encoder: Encoder, stated: Json) -> Colbert:
    """The head that `chain` describes, or Stanford's if it has no modules at all.

    Raises:
        MissingFile, ModelRefused: something is not understood; names file and key.
    """
    if not chain.rest and chain.task == "multi-vector":
        return _read_stanford(files, chain, encoder)
    found = read_token_modules(files, chain, encoder.width)
    older, prefixes = _pylate(stated)
    mask = found.mask
    if mask is None:
        if not STATED_KEYS & set(stated) and stated.get("model_type") != "ColBERT":
            raise refusal("modules.json", "type", "lists no MultiVectorMask, so nothing says which tokens count.")
        words, is_pylate = stated.get("skiplist_words"), stated.get("model_type") == "ColBERT" or bool(prefixes)
        mask = {"skiplist_words": _PUNCTUATION if words is None and is_pylate else words}
        found = msgspec.structs.replace(found, modules=(*found.modules, Normalize()))
    sides = SideReader(files, chain.folder, encoder, older)
    query, document = sides.read(mask)
    prompts = {
        side: prefix + str((stated.get("prompts") or {}).get(side) or "").removeprefix(prefix)
        for side, prefix in prefixes.items()
    }
    scoring: Literal["sum", "mean"] = "mean" if stated.get("similarity_fn_name") == "meanmaxsim" else "sum"
    head = MultiVector(found.modules, found.dimensions, query, document, scoring, found.merging)
    return Colbert(head, _tokenization(encoder, head, prefixes), prompts)


def _pylate(stated: Json) -> tuple[Json, dict[str, str]]:
    """PyLate's keys in the words of sentence-transformers' Transformer, and what it puts in front of each side."""
    prefixes = {side: str(stated[key] or "") for side, key in _PREFIXES.items() if key in stated}
    older: Json = {
        key: stated[key]
        for key in ("query_length", "document_length", "query_expansion")
        if key in stated and (stated[key] is not None or key == "query_expansion")
    }
    if "query_expansion" not in older and STATED_KEYS & set(stated):
        if stated.get("do_query_expansion") is False:
            older["query_expansion"] = None
        else:
            attend = stated.get("attend_to_expansion_tokens", stated.get("attend_to_mask_tokens"))
            length = older.pop("query_length", None) or 32
            older["query_expansion"] = {"strategy": "fixed", "attend": bool(attend), "length": length}
    return older, prefixes


def _read_stanford(files: ModelFiles, chain: Chain, encoder: Encoder) -> Colbert:
    stated = files.optional_object(_METADATA)
    prefixes = {
        "query": (stated.get("query_token_id") or "[unused0]") + " ",
        "document": (stated.get("doc_token_id") or "[unused1]") + " ",
    }
    older: Json = {
        "query_expansion": {
            "strategy": "fixed",
            "attend": bool(stated.get("attend_to_mask_tokens")),
            "length": stated.get("query_maxlen") or 32,
        }
    }
    if stated.get("doc_maxlen") is not None:
        older["document_length"] = stated["doc_maxlen"]
    skipped = _PUNCTUATION if stated.get("mask_punctuation", True) else []
    query, document = SideReader(files, chain.folder, encoder, older).read({"skiplist_words": skipped})
    head = _projection(files, encoder, query, document)
    return Colbert(head, _tokenization(encoder, head, prefixes), prefixes)


def _projection(files: ModelFiles, encoder: Encoder, query: Side, document: Side) -> MultiVector:
    """`linear.weight`, among the encoder's own tensors."""
    for path in encoder.weights:
        name = str(files.path("").joinpath(path).relative_to(files.root))
        shape = tensor_shapes(files, name).get("linear.weight", ())
        if len(shape) == 2 and shape[1] == encoder.width:
            dense = Dense(path, encoder.width, shape[0], "identity", has_bias=False, is_alone=False)
            return MultiVector((dense, Normalize()), shape[0], query, document)
    raise refusal("model.safetensors", "linear.weight", f"is missing, or does not take {encoder.width} numbers.")


def _tokenization(encoder: Encoder, head: MultiVector, prefixes: dict[str, str]) -> Tokenization:
    """The encoder's, for the longer side, and with each prefix one token if the vocabulary has it."""
    markers = []
    for prefix in prefixes.values():
        candidates = (prefix, *prefix.split(None, 1)[:1]) if prefix.split() else ()
        markers += [text for text in candidates if text in encoder.words.ids][:1]
    expansion = head.query.expansion
    longest = max(head.query.max_length, head.document.max_length, 0 if expansion is None else expansion.length)
    return msgspec.structs.replace(encoder.tokenization, max_length=longest, markers=tuple(markers))


def read_m3_heads(files: ModelFiles, encoder: Encoder) -> tuple[TokenWeights | None, MultiVector | None]:
    """The heads that bge-m3 and its kin have beside a dense vector: a weight and a vector for each token.

    The first token, which the dense vector is made of, has no vector; special tokens have no weight.

    Raises:
        ModelRefused: a head does not fit the encoder.
    """
    sparse, multivector = None, None
    if (layer := _linear(files, "sparse_linear", encoder.width)) is not None:
        layer = msgspec.structs.replace(layer, activation="relu")
        if layer.out_features != 1:
            raise refusal("sparse_linear", "weight", f"gives {layer.out_features} numbers a token; it must give one.")
        named = ("cls_token", "eos_token", "pad_token", "unk_token")
        sparse = TokenWeights(layer, tuple(sorted({encoder.words.id_of(name) for name in named} - {-1})))
    if (layer := _linear(files, "colbert_linear", encoder.width)) is not None:
        side = Side(encoder.tokenization.max_length, num_skipped=1)
        multivector = MultiVector((layer, Normalize()), layer.out_features, side, side, scoring="mean")
    return sparse, multivector


def _linear(files: ModelFiles, name: str, width: int) -> Dense | None:
    """The layer in a file of that name; None without one."""
    file = next((name + kind for kind in (".safetensors", ".pt") if files.has(name + kind)), None)
    if file is None:
        return None
    shapes = tensor_shapes(files, file)
    out_features = shapes.get("weight", (0,))[0]
    require_shape(file, "weight", shapes, (out_features, width))
    require_shape(file, "bias", shapes, (out_features,))
    return Dense(str(files.path(file)), width, out_features, "identity", name="")
