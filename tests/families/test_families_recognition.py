"""config.json of each family: older spellings say the same, everything else is refused by file and key."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from shoal.catalog import resolve
from shoal.catalog.spec import ModelSpec, Normalize, Pooling
from shoal.errors import ModelRefused
from shoal.runtimes.openvino.graph import build_graph
from tiny_models import TinyModel

WINDOWS = (("sliding_window", 8), ("num_key_value_heads", 2), ("head_dim", 16))
MODELS = {
    "modernbert": TinyModel("modernbert", num_layers=4),
    "qwen3": TinyModel("qwen3", config=WINDOWS),
    "llama": TinyModel("llama"),
    "mistral": TinyModel("mistral", config=WINDOWS),
    "gemma3": TinyModel("gemma3_text", config=WINDOWS),
    "t5": TinyModel("t5"),
    "deberta": TinyModel("deberta-v2", config=(("relative_attention", True), ("pos_att_type", ("c2p", "p2c")))),
    "gte": TinyModel("gte"),
    "static": TinyModel("static"),
}


@pytest.fixture
def copy_of(tiny_model: Callable[..., Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a tiny model that the test may edit."""

    def copy(name: str) -> Path:
        shutil.copytree(tiny_model(MODELS[name]), tmp_path / "copy")
        return tmp_path / "copy"

    return copy


def edit(directory: Path, file: str, **changes: Any) -> ModelSpec:
    """Set keys of a JSON file, `...` removes one; resolve the model again."""
    content = json.loads((directory / file).read_text())
    content.update(changes)
    kept = {key: value for key, value in content.items() if value is not ...}
    (directory / file).write_text(json.dumps(kept))
    return resolve(str(directory))


OLDER: list[tuple[str, dict[str, Any]]] = [
    (
        "modernbert",
        {
            "layer_types": ...,
            "rope_parameters": ...,
            "global_attn_every_n_layers": 3,
            "global_rope_theta": 160000.0,
            "local_rope_theta": 10000.0,
            "reference_compile": True,
        },
    ),
    ("qwen3", {"rope_parameters": ..., "layer_types": ..., "rope_theta": 10000.0, "rope_scaling": None}),
    ("llama", {"rope_parameters": ..., "head_dim": ..., "num_key_value_heads": ..., "pretraining_tp": 1}),
    ("mistral", {"rope_parameters": ..., "rope_theta": 10000.0}),
    (
        "gemma3",
        {
            "rope_parameters": ...,
            "layer_types": ...,
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
            "sliding_window_pattern": 6,
            "attn_logit_softcapping": None,
        },
    ),
    ("t5", {"is_gated_act": ..., "dense_act_fn": ..., "n_positions": 512}),
    ("deberta", {"pos_att_type": "c2p|p2c", "norm_rel_ebd": "none", "max_relative_positions": -1}),
]


@pytest.mark.parametrize(("name", "older"), OLDER, ids=[name for name, _ in OLDER])
def test_older_files_say_the_same(name: str, older: dict[str, Any], copy_of: Callable[[str], Path]) -> None:
    directory = copy_of(name)
    newer = resolve(str(directory))
    assert edit(directory, "config.json", **older).config == newer.config


REFUSED: list[tuple[str, str, str, dict[str, Any]]] = [
    ("modernbert", "config.json", "layer_types", {"layer_types": ["full_attention"]}),
    ("modernbert", "config.json", "layer_types", {"layer_types": ["chunked_attention"] * 4}),
    ("modernbert", "config.json", "global_attn_every_n_layers", {"layer_types": ..., "global_attn_every_n_layers": 0}),
    ("modernbert", "config.json", "rope_scaling", {"rope_scaling": {"type": "linear", "factor": 2}}),
    (
        "modernbert",
        "config.json",
        "rope_parameters.full_attention.rope_type",
        {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
    ),
    ("modernbert", "config.json", "hidden_activation", {"hidden_activation": "swiglu"}),
    ("qwen3", "config.json", "rope_parameters.rope_type", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}),
    ("qwen3", "config.json", "rope_parameters.rope_type", {"rope_scaling": {"type": "dynamic", "factor": 4.0}}),
    ("qwen3", "config.json", "rope_parameters.surprise", {"rope_parameters": {"rope_theta": 1e4, "surprise": 1}}),
    ("qwen3", "config.json", "rope_parameters.rope_theta", {"rope_parameters": {"rope_theta": -1}}),
    ("qwen3", "config.json", "layer_types", {"layer_types": ["sliding_attention"] * 2}),
    ("qwen3", "config.json", "num_key_value_heads", {"num_key_value_heads": 3}),
    ("qwen3", "config.json", "head_dim", {"head_dim": 7}),
    ("qwen3", "config.json", "num_hidden_layers", {"num_hidden_layers": "2"}),
    ("qwen3", "config.json", "attention_sinks", {"attention_sinks": True}),
    ("llama", "config.json", "rope_parameters.factor", {"rope_parameters": {"rope_type": "linear"}}),
    (
        "llama",
        "config.json",
        "rope_parameters.partial_rotary_factor",
        {"rope_parameters": {"partial_rotary_factor": 0.5}},
    ),
    ("llama", "config.json", "sliding_window", {"sliding_window": 8}),
    ("mistral", "config.json", "layer_types", {"layer_types": ["full_attention"] * 2}),
    ("gemma3", "config.json", "attn_logit_softcapping", {"attn_logit_softcapping": 50.0}),
    ("gemma3", "config.json", "is_causal", {"is_causal": False}),
    ("t5", "config.json", "feed_forward_proj", {"feed_forward_proj": "gated-mish"}),
    ("t5", "config.json", "model_type", {"model_type": "umt5"}),
    ("gte", "config.json", "head_dim", {"head_dim": 16}),
    ("gte", "config.json", "rope_parameters.rope_type", {"rope_scaling": {"type": "ntk", "factor": 8.0}}),
    ("gte", "config.json", "unpad_inputs", {"unpad_inputs": True}),
    ("deberta", "config.json", "pos_att_type", {"pos_att_type": "c2p|p2p"}),
    ("deberta", "config.json", "norm_rel_ebd", {"norm_rel_ebd": "rms"}),
    ("deberta", "config.json", "conv_groups", {"conv_kernel_size": 3, "conv_groups": 2}),
    ("deberta", "tokenizer.json", "model.unk_id", {}),
    ("gemma3", "tokenizer.json", "model.byte_fallback", {}),
]


@pytest.mark.parametrize(("name", "file", "key", "changes"), REFUSED, ids=[f"{row[0]}:{row[2]}" for row in REFUSED])
def test_what_is_not_understood_is_refused_by_file_and_key(
    name: str, file: str, key: str, changes: dict[str, Any], copy_of: Callable[[str], Path]
) -> None:
    directory = copy_of(name)
    if file == "tokenizer.json":
        model = json.loads((directory / file).read_text())["model"]
        changes = {"model": model | {"unk_id": 0, "byte_fallback": False}}
    with pytest.raises(ModelRefused) as refused:
        edit(directory, file, **changes)
    assert refused.value.param == f"{file}:{key}"
    assert key in refused.value.message


@pytest.mark.parametrize("name", ["modernbert", "qwen3", "gemma3"])
def test_a_language_models_file_serves_as_an_encoder(name: str, copy_of: Callable[[str], Path]) -> None:
    """Tensors stand below `model.`, beside a head that embedding does not use."""
    directory = copy_of(name)
    tensors = load_file(directory / "model.safetensors")
    head = next(iter(tensors.values()))
    named = {f"model.{key}": value for key, value in tensors.items()} | {"lm_head.weight": head}
    save_file(named, directory / "model.safetensors")
    spec = resolve(str(directory))
    assert spec.weights_prefix == "model."
    assert build_graph(spec).weight_bytes == sum(4 * value.size for value in tensors.values())


def test_a_byte_level_file_of_llamas_class_is_taken_as_it_is(copy_of: Callable[[str], Path]) -> None:
    """transformers does so too: the class would cut words otherwise."""
    directory = copy_of("llama")
    before = resolve(str(directory))
    assert before.tokenization.parts["pre_tokenizer"]["type"] == "Metaspace"
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    after = edit(directory, "tokenizer.json", pre_tokenizer=byte_level)
    assert "pre_tokenizer" not in after.tokenization.parts


def test_static_embeddings_need_no_config(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("static")
    spec = resolve(str(directory))
    assert not list(directory.rglob("config.json")) or spec.family == "static"
    assert spec.modules == (Pooling(("mean",)), Normalize())
    assert spec.tokenization.parts["post_processor"] is None
    file = next(directory.rglob("model.safetensors"))
    table = load_file(file)["embedding.weight"]
    save_file({"embeddings": table}, file)
    assert resolve(str(directory)).config["table"] == "embeddings"
    save_file({"embeddings": table, "weights": table[:, 0].copy()}, file)
    with pytest.raises(ModelRefused, match="weights is not part"):
        build_graph(resolve(str(directory)))
    save_file({"embeddings": table[:100]}, file)
    with pytest.raises(ModelRefused, match="the table has 100 rows"):
        resolve(str(directory))
