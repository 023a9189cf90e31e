"""Models that bring code of their own: run where the operator lists its repository and commit, else refused.

A listed commit is the one that a snapshot in the hub's cache is named after. A directory elsewhere has no commit, so
its code is never run, nor is that of a branch or a tag. Knows no runtime; torch is the only one that runs such code.
"""

from __future__ import annotations

import re
from typing import Any

from shoal.catalog.encoders import Encoder
from shoal.catalog.files import ModelFiles, refusal
from shoal.catalog.tokenization import read_tokenization
from shoal.catalog.weights import all_weights
from shoal.errors import ModelRefused

__all__ = ["read_own_code", "read_trusted_code"]

_UNLIMITED = 32768
"""Tokens that a text may have if nothing in the model says."""


def read_trusted_code(setting: str) -> frozenset[str]:
    """`ModelSettings.trusted_code`, checked.

    Raises:
        ModelRefused: an entry is not a repository and a whole commit.
    """
    entries = frozenset(entry.strip() for entry in setting.split(",") if entry.strip())
    for entry in entries:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", entry):
            raise ModelRefused(
                f"SHOAL_TRUSTED_CODE: {entry!r} is not organisation/model@commit with all 40 digits of the commit.",
                hint="A branch or a tag may move to other code, so it cannot be trusted.",
            )
    return entries


def read_own_code(files: ModelFiles, folder: str, task: str) -> Encoder:
    """The encoder that a config.json with `auto_map` describes, in a listed repository at the listed commit.

    Raises:
        ModelRefused: its code is not listed; says what to list. Or a key is missing.
    """
    file = folder + "config.json"
    raw = files.object(file)
    code = _require_trust(files, file, _repositories(file, raw["auto_map"], files.origin))
    for key in ("model_type", "vocab_size", "hidden_size"):
        if not raw.get(key):
            raise refusal(file, key, "is missing.")
    tokenization, words = read_tokenization(
        files,
        folder,
        raw,
        default_class=raw.get("tokenizer_class") or "TokenizersBackend",
        max_positions=int(raw.get("max_position_embeddings") or _UNLIMITED),
        task=task,
    )
    return Encoder(
        family=f"{raw['model_type']}, own code",
        config={key: value for key, value in raw.items() if isinstance(value, int | float | str)},
        weights=all_weights(files, folder),
        tokenization=tokenization,
        vocabulary_size=max(words.ids.values()) + 1,
        width=int(raw["hidden_size"]),
        raw=raw,
        words=words,
        code=code,
    )


def _repositories(file: str, auto_map: Any, origin: str) -> list[str]:
    """Where the code lies: the model's own repository at its commit, or another one."""
    if not isinstance(auto_map, dict) or not auto_map.get("AutoModel"):
        raise refusal(file, "auto_map", "names no AutoModel, which is what torch would run.")
    names = [name for name in auto_map.values() if isinstance(name, str)]
    others = sorted({name.partition("--")[0] for name in names if "--" in name})
    if len(others) > 1:
        raise refusal(file, "auto_map", f"names code of several other repositories, {', '.join(others)}.")
    return others + ([origin] if any("--" not in name for name in names) else [])


def _require_trust(files: ModelFiles, file: str, repositories: list[str]) -> tuple[str, ...]:
    """The listed commits of these repositories."""
    if not files.origin:
        reason = "asks for code of the model's own, which is run from the hub's cache only, at a commit that is listed."
        raise refusal(file, "auto_map", reason)
    listed = {name: _listed(files.trusted_code, name) for name in repositories}
    missing = [name for name, entry in listed.items() if not entry]
    if missing:
        where = ", ".join(name.partition("@")[0] for name in missing)
        wanted = ",".join(name if "@" in name else f"{name}@COMMIT" for name in missing)
        raise refusal(
            file,
            "auto_map",
            f"asks for code from {where}, which is not trusted here.",
            f"If you have read it and trust it, set SHOAL_TRUSTED_CODE={wanted} and use the runtime torch.",
        )
    return tuple(listed.values())


def _listed(trusted_code: frozenset[str], name: str) -> str:
    """The entry for a repository, or for one at a commit; "" if there is none."""
    return next((entry for entry in sorted(trusted_code) if name in (entry, entry.partition("@")[0])), "")
