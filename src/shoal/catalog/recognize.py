"""A directory of model files to a `ModelSpec`, or a refusal that names file and key. Reads files; never the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from shoal.catalog.configs import complete_config
from shoal.catalog.entries import ENTRY_FILE, Entry, load_entry
from shoal.catalog.families import family_of
from shoal.catalog.files import ModelFiles, refusal
from shoal.catalog.modules import ModuleChain, read_modules
from shoal.catalog.spec import ModelSpec, Module, Normalize, Pooling
from shoal.catalog.tokenization import read_tokenization
from shoal.catalog.weights import find_weights

__all__ = ["recognize"]

_CONFIG = "config.json"
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
    prefix, build_modules = _module_chain(files, facts)
    raw = files.object(prefix + _CONFIG)
    family = family_of(prefix + _CONFIG, raw)
    config = complete_config(files, prefix + _CONFIG, raw, family)
    weights, weights_prefix = find_weights(files, prefix, family, config)
    tokenization, vocabulary_size = read_tokenization(
        files,
        prefix,
        config,
        default_class=raw.get("tokenizer_class") or family.model_types[raw["model_type"]],
        fixed_class=family.model_types[raw["model_type"]] if family.fixes_tokenizer else "",
        max_positions=family.max_positions(config),
    )
    modules, dimensions = build_modules(int(config[family.hidden_size_key]))
    if facts.dimensions not in (0, dimensions):
        raise refusal("modules.json", "dimensions", f"come to {dimensions}; the catalog says {facts.dimensions}.")
    prompts, default_prompt_name = _prompts(files, facts)
    return ModelSpec(
        id=id,
        directory=str(files.root),
        family=family.name,
        config=config,
        weights=weights,
        weights_prefix=weights_prefix,
        tokenization=tokenization,
        modules=modules,
        dimensions=dimensions,
        prompts=prompts,
        default_prompt_name=default_prompt_name,
        matryoshka_dimensions=facts.matryoshka_dimensions,
        aliases=facts.aliases,
        licence=facts.licence,
        vocabulary_size=vocabulary_size,
    )


def _module_chain(files: ModelFiles, facts: Entry) -> tuple[str, Any]:
    if not files.has("modules.json") and facts.pooling is not None:
        tail: tuple[Module, ...] = (Normalize(),) if facts.normalize else ()
        chain: ModuleChain = (Pooling((facts.pooling,)), *tail)
        return "", lambda width: (chain, width)
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
