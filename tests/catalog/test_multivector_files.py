"""Files of multivector models: what is understood of each form, and what is refused by file and key."""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from shoal.catalog import resolve
from shoal.catalog.spec import Expansion, ModelSpec, MultiVector, TokenMerging
from shoal.errors import ModelRefused
from tiny_multivector import TinyMultiVector

MERGING = TinyMultiVector(merging=(("pool_factor", 2.0),))
FORMS = {
    "native": TinyMultiVector(),
    "merging": MERGING,
    "pylate": TinyMultiVector(form="pylate"),
    "stanford": TinyMultiVector(form="stanford"),
}
TRANSFORMER, STATED = "sentence_bert_config.json", "config_sentence_transformers.json"


@pytest.fixture
def copy_of(tiny_multivector: Callable[..., Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a tiny model that the test may edit."""

    def copy(name: str) -> Path:
        shutil.copytree(tiny_multivector(FORMS[name]), tmp_path / "copy")
        return tmp_path / "copy"

    return copy


def edit(directory: Path, file: str, **changes: Any) -> ModelSpec:
    """Set keys of a JSON file, `...` removes one; resolve the model again."""
    content = json.loads((directory / file).read_text())
    content.update(changes)
    (directory / file).write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))
    return resolve(str(directory))


def head_of(spec: ModelSpec) -> MultiVector:
    assert spec.multivector is not None
    return spec.multivector


def test_the_three_forms_say_the_same(copy_of: Callable[[str], Path]) -> None:
    """Markers, lengths, expansion and skipped tokens, each from its own file."""
    for name in ("native", "pylate", "stanford"):
        directory = copy_of(name)
        spec = resolve(str(directory))
        head = head_of(spec)
        assert spec.outputs == ("multivector",)
        assert spec.operations[:2] == ("embed", "rerank")
        assert (head.query.max_length, head.document.max_length, head.dimensions) == (32, 48, 16)
        expansion = head.query.expansion
        assert isinstance(expansion, Expansion)
        assert (expansion.length, expansion.is_attended) == (32, False)
        assert head.document.expansion is None
        assert head.query.skipped_ids == ()
        assert 3 < len(head.document.skipped_ids) <= len(string.punctuation)
        assert set(spec.prompts) == {"query", "document"}
        shutil.rmtree(directory)


def test_stanfords_defaults_hold_without_its_own_file(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("stanford")
    (directory / "artifact.metadata").unlink()
    spec = resolve(str(directory))
    assert spec.prompts == {"query": "[unused0] ", "document": "[unused1] "}
    assert spec.tokenization.markers == ("[unused0]", "[unused1]")
    assert (head_of(spec).query.max_length, head_of(spec).document.max_length) == (32, 64)


def test_a_module_that_merges_is_read(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("merging")
    assert head_of(resolve(str(directory))).merging == TokenMerging(2.0)
    # What was saved before the setting existed was saved without it.
    older = edit(directory, "4_HierarchicalTokenPooling/config.json", normalize_embeddings=..., tasks=["query"])
    assert head_of(older).merging == TokenMerging(2.0, 1, False, merges_queries=True, merges_documents=False)


AT_LEAST = {"strategy": "min", "length": 8}
REFUSED: list[tuple[str, str, str, dict[str, Any]]] = [
    ("native", TRANSFORMER, "query_length", {"query_length": 8}),
    ("native", TRANSFORMER, "document_length", {"document_length": "long"}),
    ("native", TRANSFORMER, "query_expansion.strategy", {"query_expansion": {"strategy": "most", "length": 8}}),
    ("native", TRANSFORMER, "query_expansion.length", {"query_expansion": {"strategy": "min"}}),
    ("native", TRANSFORMER, "query_expansion.length", {"query_expansion": {"strategy": "fixed", "length": 65}}),
    (
        "native",
        TRANSFORMER,
        "query_expansion.attend",
        {"query_expansion": {**AT_LEAST, "attend": 1}},
    ),
    (
        "native",
        TRANSFORMER,
        "query_expansion.token",
        {"query_expansion": {**AT_LEAST, "token": "?!"}},
    ),
    ("native", TRANSFORMER, "query_expansion", {"query_expansion": {**AT_LEAST, "surprise": 1}}),
    ("native", "tokenizer_config.json", "padding_side", {"padding_side": "left"}),
    ("native", "1_Dense/config.json", "module_input_name", {"module_input_name": "sentence_embedding"}),
    ("native", "1_Dense/config.json", "use_residual", {"use_residual": True}),
    ("native", "2_MultiVectorMask/config.json", "keep_only_token_ids", {"keep_only_token_ids": [5]}),
    ("native", "2_MultiVectorMask/config.json", "skiplist_tasks", {"skiplist_tasks": ["image"]}),
    ("native", "2_MultiVectorMask/config.json", "surprise", {"surprise": 1}),
    ("native", "3_Normalize/config.json", "module_input_name", {"module_input_name": ...}),
    ("native", STATED, "surprise", {"surprise": 1}),
    ("native", "modules.json", "type", {}),
    ("merging", "4_HierarchicalTokenPooling/config.json", "pool_factor", {"pool_factor": 0.5}),
    ("merging", "4_HierarchicalTokenPooling/config.json", "num_protected_tokens", {"num_protected_tokens": -1}),
    ("pylate", "1_Dense/config.json", "in_features", {"in_features": 7}),
    ("stanford", "artifact.metadata", "query_expansion.length", {"query_maxlen": 100}),
]


@pytest.mark.parametrize(("name", "file", "key", "changes"), REFUSED, ids=[f"{row[0]}:{row[2]}" for row in REFUSED])
def test_what_is_not_understood_is_refused_by_key(
    name: str, file: str, key: str, changes: dict[str, Any], copy_of: Callable[[str], Path]
) -> None:
    directory = copy_of(name)
    if file == "modules.json":  # no mask any more
        modules = json.loads((directory / file).read_text())
        (directory / file).write_text(json.dumps([module for module in modules if "Mask" not in module["type"]]))
    with pytest.raises(ModelRefused) as refused:
        resolve(str(directory)) if file == "modules.json" else edit(directory, file, **changes)
    assert str(refused.value.param).endswith(f":{key}")
    assert key in refused.value.message


def test_a_dense_chain_without_a_pooling_is_no_multivector_model(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("pylate")
    with pytest.raises(ModelRefused, match="lists no Pooling"):
        edit(directory, STATED, **dict.fromkeys(json.loads((directory / STATED).read_text()), ...))


def test_stanfords_projection_must_fit(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("stanford")
    tensors = load_file(directory / "model.safetensors")
    tensors["linear.weight"] = tensors["linear.weight"][:, :5].copy()
    save_file(tensors, directory / "model.safetensors")
    with pytest.raises(ModelRefused, match=r"linear\.weight"):
        resolve(str(directory))


def test_heads_of_m3_must_fit(tiny_m3: Path, tmp_path: Path) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(tiny_m3, directory)
    assert resolve(str(directory)).outputs == ("dense", "sparse", "multivector")
    shutil.copy(directory / "colbert_linear.pt", directory / "sparse_linear.pt")
    with pytest.raises(ModelRefused, match=r"sparse_linear.*24 numbers"):
        resolve(str(directory))
    (directory / "sparse_linear.pt").unlink()
    assert resolve(str(directory)).outputs == ("dense", "multivector")
