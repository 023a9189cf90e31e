"""Catalog entries: facts about known models, a YAML file each in `models/`. Also read from a model's own `shoal.yaml`.

An entry holds only what is certain and what the model's files do not say themselves. An unknown fact is absent.
"""

from __future__ import annotations

import functools
import importlib.resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from shoal.catalog.spec import PoolingMode
from shoal.errors import ModelRefused

__all__ = ["ENTRY_FILE", "Entry", "entries", "find_entry", "load_entry"]

ENTRY_FILE = "shoal.yaml"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model's facts.

    Attributes:
        id: name in requests; also its id on the hub, unless `hub` says otherwise.
        aliases: other names for it.
        hub, revision: where it comes from, and the commit it is pinned to ("" = the hub's main).
        package, sha256: a Python package that carries the same files, and the hashes that prove it, by file.
        licence: SPDX id.
        dimensions, max_length: what its files say, for lists that do not load them; 0 = not stated.
        matryoshka_dimensions: lengths it was trained to be cut to.
        prompts: by name, where its files hold none.
        pooling, normalize: for an encoder without modules.json.
    """

    id: str
    aliases: tuple[str, ...] = ()
    hub: str = ""
    revision: str = ""
    package: str = ""
    sha256: dict[str, str] = {}
    licence: str = ""
    dimensions: int = 0
    max_length: int = 0
    matryoshka_dimensions: tuple[int, ...] = ()
    prompts: dict[str, str] = {}
    pooling: PoolingMode | None = None
    normalize: bool = False

    @property
    def hub_id(self) -> str:
        return self.hub or self.id


@functools.cache
def entries() -> tuple[Entry, ...]:
    """All entries that ship with Shoal, by id."""
    folder = importlib.resources.files("shoal.catalog") / "models"
    loaded = [load_entry(file) for file in folder.iterdir() if file.name.endswith(".yaml")]
    names = [name for entry in loaded for name in (entry.id, *entry.aliases)]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ModelRefused(f"Catalog: these names stand for more than one model: {', '.join(twice)}")
    return tuple(sorted(loaded, key=lambda entry: entry.id))


def find_entry(name: str) -> Entry | None:
    """The entry with this id or alias."""
    return next((entry for entry in entries() if name == entry.id or name in entry.aliases), None)


def load_entry(file: Traversable | Path, default_id: str = "") -> Entry:
    """Read one.

    Raises:
        ModelRefused: not YAML, or a field is unknown, missing or of the wrong kind; names it.
    """
    try:
        content: Any = yaml.load(file.read_bytes(), Loader=_LOADER)  # noqa: S506 - a safe loader, see below
        if default_id and isinstance(content, dict):
            content.setdefault("id", default_id)
        return msgspec.convert(content, Entry)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ModelRefused(f"{file.name}: {error}", param=file.name) from error


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
