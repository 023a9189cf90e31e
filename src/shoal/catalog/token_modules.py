"""The modules of a multivector model: what acts on each token's state, which tokens count, and what merges vectors."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.catalog.files import ModelFiles, refusal
from shoal.catalog.modules import MODULES, TOKENS, Chain, read_dense, read_normalize
from shoal.catalog.spec import Dense, Normalize, TokenMerging

__all__ = ["TokenModules", "read_token_modules"]


class TokenModules(msgspec.Struct, frozen=True):
    """What follows the encoder of a multivector model.

    Attributes:
        modules: over each token's state.
        dimensions: numbers a vector after them.
        mask: config of the MultiVectorMask, None without one.
        merging: that of the HierarchicalTokenPooling.
    """

    modules: tuple[Dense | Normalize, ...]
    dimensions: int
    mask: dict[str, Any] | None
    merging: TokenMerging | None


def read_token_modules(files: ModelFiles, chain: Chain, width: int) -> TokenModules:
    """The modules behind a first one of that width, in a model that gives a vector a token.

    Raises:
        MissingFile, ModelRefused: a module's folder is not understood, or comes twice, or behind the one that merges.
    """
    modules: list[Dense | Normalize] = []
    mask, merging = None, None
    for kind, folder in chain.rest:
        if merging is not None or (kind == "MultiVectorMask" and mask is not None):
            raise refusal(MODULES, "type", f"has {kind} after HierarchicalTokenPooling, or twice.")
        if kind == "MultiVectorMask":
            mask = _read_mask(files, folder)
        elif kind == "HierarchicalTokenPooling":
            merging = _read_merging(files, folder)
        elif kind == "Dense":
            dense, width = read_dense(files, folder, width, TOKENS)
            modules.append(dense)
        else:
            modules.append(read_normalize(files, folder, width, TOKENS)[0])
    return TokenModules(tuple(modules), width, mask, merging)


def _read_mask(files: ModelFiles, folder: str) -> dict[str, Any]:
    file = folder + "config.json"
    content = files.object(file)
    files.refuse_unknown(file, content, frozenset(("skiplist_words", "skiplist_tasks", "keep_only_token_ids")))
    if content.get("keep_only_token_ids"):
        raise refusal(file, "keep_only_token_ids", "is set: such models are for images.")
    _require_tasks(file, "skiplist_tasks", content)
    return content


def _require_tasks(file: str, key: str, content: dict[str, Any]) -> list[str]:
    tasks = content.get(key) or ["document"]
    tasks = [tasks] if isinstance(tasks, str) else tasks
    if not isinstance(tasks, list) or set(tasks) - {"query", "document"}:
        raise refusal(file, key, f"is {tasks!r}; understood: query, document.")
    return tasks


def _read_merging(files: ModelFiles, folder: str) -> TokenMerging:
    file = folder + "config.json"
    content = files.object(file)
    known = frozenset(("pool_factor", "num_protected_tokens", "normalize_embeddings", "tasks"))
    files.refuse_unknown(file, content, known)
    tasks = _require_tasks(file, "tasks", content)
    factor, num_protected = content.get("pool_factor", 1.0), content.get("num_protected_tokens", 1)
    if not isinstance(factor, int | float) or factor < 1:
        raise refusal(file, "pool_factor", f"is {factor!r}; it must be a number of at least 1.")
    if type(num_protected) is not int or num_protected < 0:
        raise refusal(file, "num_protected_tokens", f"is {num_protected!r}; it must be a number of tokens.")
    # Files of before this setting existed mean False.
    normalizes = bool(content.get("normalize_embeddings", False))
    return TokenMerging(float(factor), num_protected, normalizes, "query" in tasks, "document" in tasks)
