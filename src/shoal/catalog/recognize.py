"""A directory of model files to a `ModelSpec`, or a refusal that names file and key. Reads files; never the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast, get_args

import msgspec

from shoal.catalog.encoders import Encoder, read_transformer
from shoal.catalog.entries import ENTRY_FILE, Entry, load_entry
from shoal.catalog.files import ModelFiles, refusal
from shoal.catalog.frames import read_frame, stated_frame
from shoal.catalog.heads import read_classifier, read_judge, read_sparse, read_tagger
from shoal.catalog.modules import Chain, Task, build_modules, read_chain, read_logit_score, read_splade
from shoal.catalog.multivector import STATED_KEYS, read_colbert, read_m3_heads, states_multivector
from shoal.catalog.own_code import read_own_code
from shoal.catalog.spec import (
    Classifier,
    Frame,
    ModelSpec,
    Module,
    MultiVector,
    Normalize,
    Pooling,
    Side,
    Sparse,
    TokenWeights,
)
from shoal.catalog.static import read_static
from shoal.catalog.tokenization import token_ids
from shoal.types import SimilarityFunction

__all__ = ["recognize"]

_CONFIG = "config.json"
_MODULES = "modules.json"
_PROMPTS = "config_sentence_transformers.json"
_PROMPT_KEYS = frozenset(
    (
        "__version__",
        "prompts",
        "default_prompt_name",
        "similarity_fn_name",
        "model_type",
        "requirements",
        "activation_fn",
    )
)
_KINDS: dict[Task, str] = {
    "feature-extraction": "SentenceTransformer",
    "multi-vector": "MultiVectorEncoder",
    "fill-mask": "SparseEncoder",
    "sequence-classification": "CrossEncoder",
    "text-generation": "CrossEncoder",
}
"""sentence-transformers' class of each task that it has one for."""

Json = dict[str, Any]


def recognize(
    directory: Path,
    id: str,
    *,
    ignored_keys: frozenset[str] = frozenset(),
    entry: Entry | None = None,
    origin: str = "",
    trusted_code: frozenset[str] = frozenset(),
) -> ModelSpec:
    """Everything needed to serve the model in a directory.

    Args:
        id: name in requests.
        ignored_keys: config keys that the user vouches for.
        entry: what the catalog knows besides; a `shoal.yaml` in the directory goes before it.
        origin, trusted_code: see `ModelFiles`.

    Raises:
        MissingFile: names the file.
        ModelRefused: something is not understood; names file and key.
    """
    files = ModelFiles(directory, ignored_keys, origin=origin, trusted_code=trusted_code)
    if files.has(ENTRY_FILE):
        entry = load_entry(files.path(ENTRY_FILE), default_id=id)
    facts = entry or Entry(id=id)
    chain = _chain(files, facts)
    encoder = _READERS[chain.first](files, chain.folder, chain.task)
    stated = _stated(files, chain)
    modules, dimensions = _modules(files, facts, chain, encoder.width)
    sparse, multivector, tokenization = _sparse(files, chain, encoder), None, encoder.tokenization
    if chain.task == "multi-vector":
        colbert = read_colbert(files, chain, encoder, stated)
        multivector, tokenization = colbert.head, colbert.tokenization
        stated = {**stated, "prompts": {**(stated.get("prompts") or {}), **colbert.prompts}}
    elif chain.task == "feature-extraction":
        sparse, multivector = read_m3_heads(files, encoder)
        if multivector is None and facts.token_states:
            side = Side(tokenization.max_length)
            multivector = MultiVector((), encoder.width, side, side)
    numbers = dimensions or (multivector.dimensions if multivector is not None else 0)
    if facts.dimensions not in (0, numbers):
        raise refusal("modules.json", "dimensions", f"come to {numbers}; the catalog says {facts.dimensions}.")
    prompts, default_prompt_name = _prompts(stated, facts, chain.task)
    words, frame = _asked(files, facts, chain, prompts.get(default_prompt_name or ""))
    return ModelSpec(
        id=id,
        directory=str(files.root),
        family=encoder.family,
        config=encoder.config,
        weights=encoder.weights,
        weights_prefix=encoder.weights_prefix,
        tokenization=tokenization,
        modules=modules,
        dimensions=dimensions,
        prompts=prompts,
        default_prompt_name=default_prompt_name,
        matryoshka_dimensions=facts.matryoshka_dimensions,
        aliases=facts.aliases,
        licence=facts.licence,
        vocabulary_size=encoder.vocabulary_size,
        sparse=sparse,
        classifier=_classifier(files, facts, chain, encoder, stated, words),
        similarity=_similarity(stated) if modules else "",
        tagger=read_tagger(files, chain.folder, encoder) if chain.task == "token-classification" else None,
        frame=frame,
        multivector=multivector,
        code=encoder.code,
    )


def _read_transformer(files: ModelFiles, folder: str, task: Task) -> Encoder:
    """An encoder of the family table, or one that brings its code."""
    has_own_code = "auto_map" in files.object(folder + _CONFIG)
    return (read_own_code if has_own_code else read_transformer)(files, folder, task)


_READERS = {"Transformer": _read_transformer, "StaticEmbedding": read_static}
"""First modules, and what reads them."""


def _chain(files: ModelFiles, facts: Entry) -> Chain:
    """modules.json, or what config.json or the catalog say where there is none."""
    if files.has(_MODULES):
        return read_chain(files)
    if facts.pooling is not None:
        return Chain("Transformer", "", "feature-extraction")
    if "HF_ColBERT" in (files.optional_object(_CONFIG).get("architectures") or []):
        return Chain("Transformer", "", "multi-vector")
    architecture = str((files.optional_object(_CONFIG).get("architectures") or [""])[0])
    if architecture.endswith("ForSequenceClassification"):
        return Chain("Transformer", "", "sequence-classification")
    if architecture.endswith("ForTokenClassification"):
        return Chain("Transformer", "", "token-classification")
    if architecture.endswith("ForCausalLM"):
        if facts.reranker is None:
            raise refusal(_CONFIG, "architectures", f"is {architecture}: {_NO_PURPOSE}", _PURPOSE_HINT)
        return Chain("Transformer", "", "text-generation")
    if architecture.endswith("ForMaskedLM") and "sparse" in facts.outputs:
        return Chain("Transformer", "", "fill-mask")
    return read_chain(files)


_NO_PURPOSE = "neither modules.json nor the catalog says whether it embeds or ranks, and that is never guessed."
_PURPOSE_HINT = "State `pooling`, or `reranker` with its frame, in a shoal.yaml beside the files."


def _modules(files: ModelFiles, facts: Entry, chain: Chain, width: int) -> tuple[tuple[Module, ...], int]:
    if chain.task != "feature-extraction":
        return (), 0
    if chain.rest or facts.pooling is None:
        return build_modules(files, chain, width)
    return (Pooling((facts.pooling,)), *([Normalize()] if facts.normalize else [])), width


def _sparse(files: ModelFiles, chain: Chain, encoder: Encoder) -> Sparse | TokenWeights | None:
    if chain.task != "fill-mask":
        return None
    pooling = read_splade(files, chain.rest[0][1]) if chain.rest else {}
    return read_sparse(files, chain.folder, encoder, pooling)


def _classifier(
    files: ModelFiles, facts: Entry, chain: Chain, encoder: Encoder, stated: Json, words: tuple[int, ...]
) -> Classifier | None:
    if chain.task not in ("sequence-classification", "text-generation"):
        return None
    of_config = encoder.raw.get("sentence_transformers") or {}
    declared = (
        stated.get("activation_fn")
        or of_config.get("activation_fn")
        or encoder.raw.get("sbert_ce_default_activation_function")
        or ""
    )
    if words:
        return read_judge(files, chain.folder, encoder, words, declared=str(declared))
    is_cross_encoder = bool(declared) or stated.get("model_type") == "CrossEncoder" or "rerank" in facts.operations
    return read_classifier(files, chain.folder, encoder, declared=str(declared), ranks=is_cross_encoder)


def _asked(
    files: ModelFiles, facts: Entry, chain: Chain, instruction: str | None
) -> tuple[tuple[int, ...], Frame | None]:
    """What a decoder that ranks may answer (ids of "no" and "yes", or of "yes" alone), and what it is asked.

    Its own files go before what is stated; () and None for any other model.
    """
    if chain.task != "text-generation":
        return (), None
    if chain.rest or facts.reranker is None:
        return read_logit_score(files, chain.rest[0][1]), read_frame(files, chain.folder, instruction)
    stated = facts.reranker
    words = token_ids(files, chain.folder, (stated.no_word, stated.yes_word), "reranker")
    return words, stated_frame(stated.frame, stated.instruction, ENTRY_FILE)


def _stated(files: ModelFiles, chain: Chain) -> Json:
    """config_sentence_transformers.json, checked; {} if there is none."""
    task = chain.task
    if task == "multi-vector" and not chain.rest:
        return {}  # as in the reference, which takes Stanford's own file for it
    content = files.optional_object(_PROMPTS)
    files.refuse_unknown(_PROMPTS, content, _PROMPT_KEYS | (STATED_KEYS if task == "multi-vector" else frozenset()))
    expected = _KINDS.get(task, "none of its classes")
    kind = content.get("model_type", expected)
    if task == "multi-vector":
        if not states_multivector(content):
            raise refusal("modules.json", "type", "lists no Pooling, and the model is none for multivectors.")
    elif kind != expected:
        raise refusal(_PROMPTS, "model_type", f"is {kind!r}, but the modules are those of a {expected}.")
    return content


def _similarity(stated: Json) -> SimilarityFunction:
    """Where nothing is stated it is the cosine, as in sentence-transformers."""
    name = stated.get("similarity_fn_name") or "cosine"
    known = [function for function in get_args(SimilarityFunction) if function]
    if name not in known:
        raise refusal(_PROMPTS, "similarity_fn_name", f"is {name!r}; known are {', '.join(known)}.")
    return cast("SimilarityFunction", name)


def _prompts(content: Json, facts: Entry, task: Task) -> tuple[dict[str, str], str | None]:
    stated = {str(name): text or "" for name, text in (content.get("prompts") or {}).items()}
    try:
        prompts = msgspec.convert({**facts.prompts, **stated}, dict[str, str])
    except msgspec.ValidationError as error:
        raise refusal(_PROMPTS, "prompts", f"is not understood: {error}") from error
    default = content.get("default_prompt_name") or None
    if default is not None and default not in prompts:
        raise refusal(_PROMPTS, "default_prompt_name", f"is {default!r}, but the prompts are {sorted(prompts)}.")
    if default is not None and task == "sequence-classification":
        raise refusal(_PROMPTS, "default_prompt_name", f"is {default!r}; prompts of pairs are not understood.")
    return prompts, default
