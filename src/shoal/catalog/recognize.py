"""A directory of model files to a `ModelSpec`, or a refusal that names file and key. Reads files; never the network."""

from __future__ import annotations

from pathlib import Path

import msgspec

from shoal.catalog.encoders import read_transformer
from shoal.catalog.entries import ENTRY_FILE, Entry, load_entry
from shoal.catalog.files import ModelFiles, refusal
from shoal.catalog.modules import Chain, read_modules
from shoal.catalog.spec import ModelSpec, Module, Normalize, Pooling
from shoal.catalog.static import read_static

__all__ = ["recognize"]

_PROMPTS = "config_sentence_transformers.json"
_PROMPT_KEYS = frozenset(
    ("__version__", "prompts", "default_prompt_name", "similarity_fn_name", "model_type", "requirements")
)


def recognize(
    directory: Path, id: str, *, ignored_keys: frozenset[str] = frozenset(), entry: Entry | None = None
) -> ModelSpec:
    """Everything needed to serve the model in a directory.

    Args:
        id: name in requests.
        ignored_keys: config keys that the user vouches for.
        entry: what the catalog knows besides; a `shoal.yaml` in the directory goes before it.

    Raises:
        MissingFile: names the file.
        ModelRefused: something is not understood; names file and key.
    """
    files = ModelFiles(directory, ignored_keys)
    if files.has(ENTRY_FILE):
        entry = load_entry(files.path(ENTRY_FILE), default_id=id)
    facts = entry or Entry(id=id)
    chain = _module_chain(files, facts)
    encoder = _READERS[chain.first](files, chain.folder)
    modules, dimensions = chain.build(encoder.width)
    if facts.dimensions not in (0, dimensions):
        raise refusal("modules.json", "dimensions", f"come to {dimensions}; the catalog says {facts.dimensions}.")
    prompts, default_prompt_name = _prompts(files, facts)
    return ModelSpec(
        id=id,
        directory=str(files.root),
        family=encoder.family,
        config=encoder.config,
        weights=encoder.weights,
        weights_prefix=encoder.weights_prefix,
        tokenization=encoder.tokenization,
        modules=modules,
        dimensions=dimensions,
        prompts=prompts,
        default_prompt_name=default_prompt_name,
        matryoshka_dimensions=facts.matryoshka_dimensions,
        aliases=facts.aliases,
        licence=facts.licence,
        vocabulary_size=encoder.vocabulary_size,
    )


_READERS = {"Transformer": read_transformer, "StaticEmbedding": read_static}
"""First modules, and what reads them."""


def _module_chain(files: ModelFiles, facts: Entry) -> Chain:
    if not files.has("modules.json") and facts.pooling is not None:
        tail: tuple[Module, ...] = (Normalize(),) if facts.normalize else ()
        modules: tuple[Module, ...] = (Pooling((facts.pooling,)), *tail)
        return Chain("Transformer", "", lambda width: (modules, width))
    return read_modules(files)


def _prompts(files: ModelFiles, facts: Entry) -> tuple[dict[str, str], str | None]:
    content = files.optional_object(_PROMPTS)
    files.refuse_unknown(_PROMPTS, content, _PROMPT_KEYS)
    kind = content.get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise refusal(_PROMPTS, "model_type", f"is {kind!r}; only 'SentenceTransformer' models embed densely.")
    stated = {str(name): text or "" for name, text in (content.get("prompts") or {}).items()}
    try:
        prompts = msgspec.convert({**facts.prompts, **stated}, dict[str, str])
    except msgspec.ValidationError as error:
        raise refusal(_PROMPTS, "prompts", f"is not understood: {error}") from error
    default = content.get("default_prompt_name") or None
    if default is not None and default not in prompts:
        raise refusal(_PROMPTS, "default_prompt_name", f"is {default!r}, but the prompts are {sorted(prompts)}.")
    return prompts, default
