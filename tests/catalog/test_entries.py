"""The catalog's own entries: sound, sourced, of one form, quickly read; the tool that writes them; what a pin means."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import huggingface_hub.constants
import pytest
import yaml

import shoal.catalog
from hub_standin import COMMIT, lay_out_cache
from shoal.catalog import MissingFile, entries, resolve
from shoal.catalog.entries import Entry, find_entry, load_entries, load_entry, sources
from shoal.errors import ModelRefused, UnknownModel
from tiny_models import TinyModel

MODELS = Path(shoal.catalog.__file__).parent / "models"
SCRIPT = Path(__file__).parents[2] / "scripts" / "catalog"
PINNED = (
    "NbAiLab/nb-sbert-base"  # An entry with a commit and without dimensions, so that a tiny model may stand for it.
)
OPEN_LICENCES = {"Apache-2.0", "MIT", "CC-BY-4.0", "AFL-3.0", "OpenMDW-1.1"}
FACTS = (
    *("operations", "revision", "licence", "languages", "model_type", "needs_own_code", "num_parameters", "size_mib"),
    *("dimensions", "vocabulary_size", "max_length", "matryoshka_dimensions", "pooling", "prompts", "reranker"),
)


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """scripts/catalog as a module."""
    loader = importlib.machinery.SourceFileLoader("catalog_tool", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_there_are_models_of_every_kind() -> None:
    known = entries()
    assert len(known) >= 80
    for output in ("dense", "sparse", "multivector"):
        assert sum(output in entry.outputs for entry in known) >= 10, output
    for operation in ("rerank", "classify", "extract"):
        assert sum(operation in entry.operations for entry in known) >= 10, operation
    assert sum(entry.purpose == "zero_shot" for entry in known) >= 5


def test_no_name_stands_for_two_models() -> None:
    names = [name for entry in entries() for name in (entry.id, *entry.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.id)
def test_facts_are_possible_and_sourced(entry: Entry) -> None:
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", entry.hub_id)
    assert re.fullmatch(r"([0-9a-f]{40})?", entry.revision)
    assert not entry.licence or entry.licence in OPEN_LICENCES or re.match(r"CC-BY-NC|LicenseRef-\w", entry.licence)
    assert all(re.fullmatch(r"[a-z]{2,3}", code) for code in entry.languages.split())
    assert all(0 < length <= entry.dimensions for length in entry.matryoshka_dimensions)
    assert bool(entry.outputs) == (entry.operations == ("embed",))
    assert bool(entry.purpose) == bool({"classify", "extract"} & set(entry.operations))
    stated = [field for field in FACTS if getattr(entry, field)]
    sourced = [field for fields in entry.facts_from.values() for field in fields.split()]
    assert len(sourced) == len(set(sourced)), "a field has two sources"
    assert set(sourced) == set(stated) | ({"outputs"} if entry.outputs else set()) | (
        {"purpose"} if entry.purpose else set()
    )
    assert entry.facts_from.keys() <= sources().keys()


@pytest.mark.parametrize("file", sorted(MODELS.glob("*.yaml")), ids=lambda file: file.stem)
def test_files_have_the_form_that_the_tool_writes(file: Path, tool: ModuleType) -> None:
    assert file.read_text(encoding="utf-8") == tool.as_yaml(load_entries(file))


def test_entries_are_read_only_when_asked_and_quickly() -> None:
    script = """
import time
from shoal.catalog.entries import entries
assert entries.cache_info().currsize == 0
best = 1.0
for _ in range(5):
    entries.cache_clear()
    started = time.process_time()
    entries()
    best = min(best, time.process_time() - started)
print(best)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    # 25 ms where this was written; a parser without C would take ten times as long.
    assert float(done.stdout) < 0.15


def test_a_slip_in_a_list_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "more.yaml"
    for content, named in (
        ("- id: a/b\n  license: MIT", "license"),
        ("- id: a/b\n  operations: [embedd]", "operations"),
        ("- id: a/b\n  languages: no", "languages"),
        ("id: a/b", "array"),
    ):
        file.write_text(content)
        with pytest.raises(ModelRefused, match=rf"more\.yaml: .*{named}"):
            load_entries(file)


def test_the_tool_reads_what_the_files_state(tool: ModuleType, demo_directory: Path) -> None:
    entry = tool.entry_of(demo_directory, "some-org/some-model")
    assert (entry.operations, entry.outputs, entry.aliases) == (("embed",), ("dense",), ("some-model",))
    assert (entry.model_type, entry.dimensions, entry.max_length) == ("bert", 384, 256)
    assert (entry.num_parameters, entry.size_mib) == (22_713_216, 87)
    assert entry.revision == ""
    assert "revision" not in entry.facts_from["files"]


def test_the_catalog_agrees_with_the_files(tool: ModuleType, demo_directory: Path) -> None:
    """What was read in a second place is what the files say."""
    known = find_entry("sentence-transformers/all-MiniLM-L6-v2")
    assert known is not None
    read = tool.entry_of(demo_directory, known.id)
    for field in ("operations", "outputs", "licence", "model_type", "num_parameters", "size_mib", "dimensions"):
        assert getattr(read, field) == getattr(known, field), field
    assert (read.revision, read.facts_from["mteb"]) == (known.revision, "revision")


def test_the_tool_tells_the_kinds_apart(tool: ModuleType, tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    snapshot = tmp_path / COMMIT
    shutil.copytree(tiny_model(TinyModel()), snapshot)
    (snapshot / "README.md").write_text("---\nlicense: mit\nlanguage:\n- no\n- multilingual\n- de\n---\n# A model\n")
    entry = tool.entry_of(snapshot, "a/b")
    assert (entry.revision, entry.licence, entry.languages) == (COMMIT, "MIT", "de no")
    (snapshot / "modules.json").unlink()
    config = yaml.safe_load((snapshot / "config.json").read_text())
    for architecture, labels, operation in (
        ("BertForSequenceClassification", 1, ("rerank",)),
        ("BertForSequenceClassification", 3, ("classify",)),
        ("BertForTokenClassification", 9, ("extract",)),
    ):
        names = {str(number): f"label {number}" for number in range(labels)}
        config |= {"architectures": [architecture], "id2label": names, "auto_map": {}}
        (snapshot / "config.json").write_text(tool.json.dumps(config))
        entry = tool.entry_of(snapshot, "a/b")
        assert (entry.operations, entry.outputs, entry.needs_own_code) == (operation, (), True)


def test_the_tool_writes_into_a_file(demo_directory: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    command = [sys.executable, str(SCRIPT), str(demo_directory)]
    for id in ("z/last", "a/first", "z/last"):
        subprocess.run([*command, "--id", id, "--write", str(file)], check=True, capture_output=True)
    assert [entry.id for entry in load_entries(file)] == ["a/first", "z/last"]
    printed = subprocess.run([*command, "--id", "a/first"], check=True, capture_output=True, text=True).stdout
    assert file.read_text().startswith(printed)
    single = tmp_path / "shoal.yaml"
    single.write_text(printed.replace("- id", "  id"))
    assert load_entry(single) == load_entries(file)[0]


@pytest.fixture
def offline_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_cached_commit_serves_although_the_catalog_pins_another(
    offline_cache: Path, tiny_model: Callable[..., Path]
) -> None:
    known = find_entry(PINNED)
    assert known is not None
    assert known.revision not in ("", COMMIT)
    with pytest.raises(UnknownModel, match=known.revision):
        resolve(PINNED)
    lay_out_cache(offline_cache, PINNED, tiny_model(TinyModel()))
    assert resolve(PINNED).revision == COMMIT
    # Who names a commit gets that one or none.
    with pytest.raises(UnknownModel, match="cache"):
        resolve(f"{PINNED}@{known.revision}")


def test_a_pinned_commit_that_lacks_a_file_says_how_to_take_the_newest(
    tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "model"
    shutil.copytree(tiny_model(TinyModel()), directory)
    (directory / "model.safetensors").unlink()
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("shoal.catalog.resolving.download_snapshot", lambda *names, **options: directory)
    with pytest.raises(MissingFile, match="safetensors") as refused:
        resolve(PINNED)
    assert refused.value.hint is not None
    assert f"{PINNED}@main" in refused.value.hint
