"""Catalog entries: facts about known models, lists of them in `models/`. Also read from a model's own `shoal.yaml`.

An entry holds only what a source states, and names the source. An unknown fact is absent.
"""

from __future__ import annotations

import functools
import importlib.resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import yaml

from shoal.catalog.spec import PoolingMode
from shoal.errors import ModelRefused

__all__ = [
    "ENTRY_FILE",
    "Entry",
    "EntryOperation",
    "Output",
    "RerankerFacts",
    "entries",
    "find_entry",
    "load_entries",
    "load_entry",
    "sources",
]

ENTRY_FILE = "shoal.yaml"

T = TypeVar("T")

EntryOperation = Literal["embed", "rerank", "classify", "extract"]
Output = Literal["dense", "sparse", "multivector"]


class RerankerFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a decoder ranks that is asked whether a document answers a query.

    Attributes:
        frame: what it is given: a text with {query}, {document} and, if it is told what counts, {instruction}.
        instruction: what {instruction} is if the request does not say.
        yes_word, no_word: what it may answer, tokens of its vocabulary.
    """

    frame: str
    instruction: str = ""
    yes_word: str = "yes"
    no_word: str = "no"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One model's facts.

    Attributes:
        id: name in requests; also its id on the hub, unless `hub` says otherwise.
        aliases: other names for it.
        hub, revision: where it comes from, and the commit it is pinned to ("" = the hub's main).
        package, sha256: a Python package that carries the same files, and the hashes that prove it, by file.
        operations: what it is for.
        outputs: what embedding returns; empty for other operations.
        purpose: what a classifier's or extractor's labels are about, such as `sentiment`, `ner` or `zero_shot`.
        licence: SPDX id; `LicenseRef-` and a name where there is none.
        languages: ISO 639 codes (two letters where there are), separated by spaces.
        model_type: as in its config.json; decides which family serves it.
        needs_own_code: its files ask for code from its repository (`auto_map`), which is not run.
        num_parameters: of the model, heads included as far as its source counts them.
        size_mib: its weights as they are stored.
        dimensions: numbers in a dense vector, or in each vector of a multivector output.
        vocabulary_size: length of a sparse vector.
        max_length: tokens of the longest text. Like `dimensions` for lists that do not load its files; 0 = not stated.
        matryoshka_dimensions: lengths it was trained to be cut to.
        prompts: by name, where its files hold none.
        pooling, normalize: for an encoder without modules.json.
        token_states: whether a dense model gives the states of its tokens, too, as output multivector.
        reranker: for a decoder without modules.json.
        notes: what a reader should know besides.
        facts_from: fields by the source that states them, separated by spaces; `sources()` says what the names mean.
    """

    id: str
    aliases: tuple[str, ...] = ()
    hub: str = ""
    revision: str = ""
    package: str = ""
    sha256: dict[str, str] = {}
    operations: tuple[EntryOperation, ...] = ("embed",)
    outputs: tuple[Output, ...] = ()
    purpose: str = ""
    licence: str = ""
    languages: str = ""
    model_type: str = ""
    needs_own_code: bool = False
    num_parameters: int = 0
    size_mib: int = 0
    dimensions: int = 0
    vocabulary_size: int = 0
    max_length: int = 0
    matryoshka_dimensions: tuple[int, ...] = ()
    prompts: dict[str, str] = {}
    pooling: PoolingMode | None = None
    normalize: bool = False
    token_states: bool = False
    reranker: RerankerFacts | None = None
    notes: str = ""
    facts_from: dict[str, str] = {}

    @property
    def hub_id(self) -> str:
        return self.hub or self.id


@functools.cache
def entries() -> tuple[Entry, ...]:
    """All entries that ship with Shoal, by id.

    Raises:
        ModelRefused: a file is not understood, or two models share a name.
    """
    folder = importlib.resources.files("shoal.catalog") / "models"
    files = [file for file in folder.iterdir() if file.name.endswith(".yaml")]
    loaded = [entry for file in files for entry in load_entries(file)]
    names = [name for entry in loaded for name in (entry.id, *entry.aliases)]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ModelRefused(f"Catalog: these names stand for more than one model: {', '.join(twice)}")
    return tuple(sorted(loaded, key=lambda entry: entry.id.lower()))


def find_entry(name: str) -> Entry | None:
    """The entry with this id or alias."""
    return next((entry for entry in entries() if name == entry.id or name in entry.aliases), None)


def sources() -> dict[str, str]:
    """What the names in `facts_from` stand for."""
    content = (importlib.resources.files("shoal.catalog") / "sources.yaml").read_bytes()
    return msgspec.convert(yaml.load(content, Loader=_LOADER), dict[str, str])  # noqa: S506 - a safe loader, see below


def load_entries(file: Traversable | Path) -> list[Entry]:
    """Read a list of entries; raises as `load_entry` does."""
    return _read(file, list[Entry])


def load_entry(file: Traversable | Path, default_id: str = "") -> Entry:
    """Read one.

    Raises:
        ModelRefused: not YAML, or a field is unknown, missing or of the wrong kind; names it.
    """
    return _read(file, Entry, default_id)


def _read(file: Traversable | Path, kind: type[T], default_id: str = "") -> T:
    try:
        content: Any = yaml.load(file.read_bytes(), Loader=_LOADER)  # noqa: S506 - a safe loader, see below
        if default_id and isinstance(content, dict):
            content.setdefault("id", default_id)
        return msgspec.convert(content, kind)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ModelRefused(f"{file.name}: {error}", param=file.name) from error


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
