"""A directory is understood completely, in both generations of its files, or refused by file and key."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from safetensors.numpy import load_file, save_file

from shoal.catalog import MissingFile, resolve
from shoal.catalog.spec import Dense, ModelSpec, Normalize, Pooling
from shoal.errors import ModelRefused
from shoal.settings import ModelSettings
from tiny_models import ARCHITECTURES, TinyModel, load_reference, quiet

FAMILY = {"bert": "bert", "roberta": "roberta", "xlm-roberta": "roberta", "distilbert": "distilbert", "mpnet": "mpnet"}
FULL_CHAIN = TinyModel(
    dense=((24, "Tanh"), (16, "Identity")), prompts=(("query", "query: "),), default_prompt_name="query"
)


@pytest.fixture
def copy_of(tiny_model: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """A copy of a tiny model that the test may edit."""

    def copy(*recipe: Any, **fields: Any) -> Path:
        target = tmp_path / "copy"
        shutil.copytree(tiny_model(*recipe, **fields), target)
        return target

    return copy


def edit(directory: Path, file: str, **changes: Any) -> None:
    """Set keys of a JSON file; `...` removes one."""
    path = directory / file
    content = json.loads(path.read_text()) if path.exists() else {}
    content.update({key: value for key, value in changes.items() if value is not ...})
    for key in [key for key, value in changes.items() if value is ...]:
        content.pop(key, None)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def facts(spec: ModelSpec) -> dict[str, Any]:
    """What must not depend on where the files lie, or on their generation."""
    names = ("family", "config", "dimensions", "prompts", "default_prompt_name", "vocabulary_size", "weights_prefix")
    chain = [
        msgspec.structs.replace(module, weights_file="") if isinstance(module, Dense) else module
        for module in spec.modules
    ]
    known = {name: getattr(spec, name) for name in names}
    return {**known, "modules": chain, "max_length": spec.tokenization.max_length, "parts": spec.tokenization.parts}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_architecture_is_recognised(architecture: str, tiny_model: Callable[..., Path]) -> None:
    directory = tiny_model(architecture, pooling="cls", dense=((24, "Tanh"),))
    spec = resolve(str(directory))
    reference = load_reference(directory)
    assert spec.family == FAMILY[architecture]
    assert spec.dimensions == reference.get_embedding_dimension() == 24
    assert spec.tokenization.max_length == reference.max_seq_length == 128
    assert spec.vocabulary_size == len(reference.tokenizer) == spec.config["vocab_size"]
    pooling, dense, normalize = spec.modules
    assert pooling == Pooling(("cls",))
    assert isinstance(dense, Dense)
    assert (dense.in_features, dense.out_features, dense.activation) == (32, 24, "tanh")
    assert normalize == Normalize()
    assert spec.is_normalized
    for key, value in spec.config.items():
        if key != "position_embedding_type":  # transformers 5 has no other kind left, and no key for it
            assert getattr(reference[0].auto_model.config, key) == value


@pytest.mark.parametrize(
    ("stated", "understood"),
    [
        ("mean", ("mean",)),
        ("cls", ("cls",)),
        ("max", ("max",)),
        ("weightedmean", ("weighted_mean",)),
        ("lasttoken", ("last_token",)),
        ("mean_sqrt_len_tokens", ("mean_sqrt_len",)),
        (("max", "mean"), ("max", "mean")),
    ],
)
def test_each_pooling_is_recognised(
    stated: str | tuple[str, ...], understood: tuple[str, ...], tiny_model: Callable[..., Path]
) -> None:
    spec = resolve(str(tiny_model("bert", pooling=stated, normalize=False)))
    assert spec.modules == (Pooling(understood),)
    assert spec.dimensions == 32 * len(understood)
    assert not spec.is_normalized


def test_old_and_new_generation_say_the_same(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    new = tiny_model(FULL_CHAIN)
    old = tmp_path / "old"
    shutil.copytree(new, old)
    rows = json.loads((old / "modules.json").read_text())
    for row in rows:
        row["type"] = "sentence_transformers.models." + row["type"].rsplit(".", 1)[-1]
    (old / "modules.json").write_text(json.dumps(rows))
    (old / "1_Pooling/config.json").write_text(
        json.dumps(
            {
                "word_embedding_dimension": 32,
                "pooling_mode_cls_token": False,
                "pooling_mode_mean_tokens": True,
                "pooling_mode_max_tokens": False,
                "pooling_mode_mean_sqrt_len_tokens": False,
            }
        )
    )
    for folder in ("2_Dense", "3_Dense"):
        edit(old, f"{folder}/config.json", module_input_name=..., module_output_name=...)
    shutil.rmtree(old / "4_Normalize")
    (old / "sentence_bert_config.json").write_text('{"max_seq_length": 128, "do_lower_case": false}')
    edit(old, "config_sentence_transformers.json", model_type=..., similarity_fn_name=...)
    assert facts(resolve(str(old))) == facts(resolve(str(new)))


def test_demo_model_saved_again_says_the_same(demo_directory: Path, tmp_path: Path) -> None:
    reference = load_reference(demo_directory)
    with quiet():
        reference.save(str(tmp_path / "again"), create_model_card=False)
    assert json.loads((tmp_path / "again/1_Pooling/config.json").read_text())["pooling_mode"] == "mean"
    old, new = facts(resolve(str(demo_directory))), facts(resolve(str(tmp_path / "again")))
    # Saving writes placeholders for the two usual prompts.
    assert (old.pop("prompts"), new.pop("prompts")) == ({}, {"query": "", "document": ""})
    assert old == new
    assert new["max_length"] == reference.max_seq_length == 256


@pytest.mark.parametrize(
    ("of_module", "of_tokenizer", "max_length"),
    [(100, 64, 100), (None, 64, 64), (None, None, 128), (None, 1e30, 128), (9999, None, 128)],
)
@pytest.mark.parametrize("architecture", ["bert", "roberta", "mpnet"])
def test_max_length_is_the_references_but_never_beyond_the_position_table(
    architecture: str,
    of_module: int | None,
    of_tokenizer: float | None,
    max_length: int,
    copy_of: Callable[..., Path],
) -> None:
    directory = copy_of(architecture)
    edit(directory, "sentence_bert_config.json", max_seq_length=of_module)
    edit(directory, "tokenizer_config.json", model_max_length=of_tokenizer if of_tokenizer is not None else ...)
    assert resolve(str(directory)).tokenization.max_length == max_length
    if of_module != 9999 and architecture == "bert":
        assert load_reference(directory).max_seq_length == max_length


def test_encoder_in_a_subdirectory(copy_of: Callable[..., Path]) -> None:
    directory = copy_of(FULL_CHAIN)
    expected = facts(resolve(str(directory)))
    (directory / "0_Transformer").mkdir()
    for file in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (directory / file).rename(directory / "0_Transformer" / file)
    rows = json.loads((directory / "modules.json").read_text())
    rows[0]["path"] = "0_Transformer"
    (directory / "modules.json").write_text(json.dumps(rows))
    spec = resolve(str(directory))
    assert facts(spec) == expected
    assert spec.weights == (str(directory / "0_Transformer/model.safetensors"),)


def test_shards_are_found_and_a_missing_one_is_named(copy_of: Callable[..., Path]) -> None:
    directory = copy_of("bert")
    tensors = load_file(directory / "model.safetensors")
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = {key: names[place % 2] for place, key in enumerate(sorted(tensors))}
    for name in names:
        save_file({key: tensors[key] for key in index if index[key] == name}, directory / name)
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    assert resolve(str(directory)).weights == tuple(str(directory / name) for name in names)
    (directory / names[1]).unlink()
    with pytest.raises(MissingFile, match=names[1]):
        resolve(str(directory))


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "mpnet"])
def test_prefixed_tensor_names(architecture: str, copy_of: Callable[..., Path]) -> None:
    directory = copy_of(architecture)
    tensors = load_file(directory / "model.safetensors")
    save_file({f"{architecture}.{key}": value for key, value in tensors.items()}, directory / "model.safetensors")
    assert resolve(str(directory)).weights_prefix == f"{architecture}."


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("1_Pooling/config.json", {"pooling_mode": "something-new"}),
    ("1_Pooling/config.json", {"pooling_mode": []}),
    ("1_Pooling/config.json", {"embedding_dimension": 33}),
    ("1_Pooling/config.json", {"pooling_mode_new_tokens": True}),
    ("2_Dense/config.json", {"activation_function": "my_code.Swish"}),
    ("2_Dense/config.json", {"activation_function": "torch.nn.modules.activation.PReLU"}),
    ("2_Dense/config.json", {"use_residual": True}),
    ("2_Dense/config.json", {"in_features": 31}),
    ("2_Dense/config.json", {"module_input_name": "token_embeddings"}),
    ("2_Dense/config.json", {"surprise": 1}),
    ("4_Normalize/config.json", {"module_input_name": "token_embeddings"}),
    ("config.json", {"model_type": "xlnet"}),
    ("config.json", {"model_type": None}),
    ("config.json", {"position_embedding_type": "relative_key"}),
    ("config.json", {"is_decoder": True}),
    ("config.json", {"add_cross_attention": True}),
    ("config.json", {"hidden_act": "quick_gelu"}),
    ("config.json", {"auto_map": {"AutoModel": "code.Model"}}),
    ("config.json", {"pruned_heads": {"0": [1]}}),
    ("config.json", {"quantization_config": {}}),
    ("config.json", {"num_attention_heads": 0}),
    ("config.json", {"num_attention_heads": 5}),
    ("config.json", {"hidden_size": "32"}),
    ("config.json", {"rotary_embedding_base": 10000}),
    ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}),
    ("config_sentence_transformers.json", {"truncate_dim": 8}),
    ("config_sentence_transformers.json", {"default_prompt_name": "unheard"}),
    ("config_sentence_transformers.json", {"prompts": {"query": 5}}),
    ("sentence_bert_config.json", {"transformer_task": "fill-mask"}),
    ("sentence_bert_config.json", {"query_length": 32}),
    ("sentence_bert_config.json", {"processing_kwargs": {"text": {"max_length": 5}}}),
    ("sentence_bert_config.json", {"max_seq_length": "long"}),
    ("sentence_bert_config.json", {"surprise": 1}),
    ("tokenizer_config.json", {"tokenizer_class": "BertJapaneseTokenizer"}),
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["code.Tokenizer", None]}}),
    ("tokenizer_config.json", {"split_special_tokens": True}),
    ("tokenizer_config.json", {"truncation_side": "middle"}),
]


@pytest.mark.parametrize(("file", "change"), REFUSED, ids=[f"{file}:{change}" for file, change in REFUSED])
def test_what_is_not_understood_is_refused_by_file_and_key(
    file: str, change: dict[str, Any], copy_of: Callable[..., Path]
) -> None:
    directory = copy_of(FULL_CHAIN)
    resolve(str(directory))
    edit(directory, file, **change)
    with pytest.raises(ModelRefused) as refused:
        resolve(str(directory))
    key = next(iter(change))
    assert file in refused.value.message
    # Two keys that contradict each other: either may be named.
    assert key in refused.value.message or key == "num_attention_heads"
    assert refused.value.param is not None
    assert refused.value.param.startswith(file)


def test_a_key_that_the_user_vouches_for_is_let_through(copy_of: Callable[..., Path]) -> None:
    directory = copy_of("bert")
    expected = facts(resolve(str(directory)))
    edit(directory, "config.json", surprise=1)
    with pytest.raises(ModelRefused, match="SHOAL_IGNORE_CONFIG_KEYS=surprise"):
        resolve(str(directory))
    assert facts(resolve(str(directory), ModelSettings(ignore_config_keys="other, surprise"))) == expected


@pytest.mark.parametrize(
    ("type_", "key"),
    [
        ("sentence_transformers.models.LSTM", "[2].type"),
        ("sentence_transformers.sparse_encoder.models.SpladePooling", "type"),
        ("my_code.Dense", "[2].type"),
        ("sentence_transformers.models.Pooling", "type"),
    ],
)
def test_unknown_modules_are_refused(type_: str, key: str, copy_of: Callable[..., Path]) -> None:
    directory = copy_of(FULL_CHAIN)
    rows = json.loads((directory / "modules.json").read_text())
    rows[2]["type"] = type_
    (directory / "modules.json").write_text(json.dumps(rows))
    with pytest.raises(ModelRefused) as refused:
        resolve(str(directory))
    assert refused.value.param == f"modules.json:{key}"


@pytest.mark.parametrize("path", ["../elsewhere", "/etc", "a/../../b"])
def test_a_module_folder_stays_inside(path: str, copy_of: Callable[..., Path]) -> None:
    directory = copy_of(FULL_CHAIN)
    rows = json.loads((directory / "modules.json").read_text())
    rows[2]["path"] = path
    (directory / "modules.json").write_text(json.dumps(rows))
    with pytest.raises(ModelRefused, match="leads out of"):
        resolve(str(directory))


@pytest.mark.parametrize(
    "gone",
    [
        "2_Dense",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
        "1_Pooling/config.json",
        "config.json",
        "tokenizer.json",
        "model.safetensors",
        "modules.json",
    ],
)
def test_a_missing_file_is_named(gone: str, copy_of: Callable[..., Path]) -> None:
    directory = copy_of(FULL_CHAIN)
    path = directory / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(MissingFile) as missing:
        resolve(str(directory))
    assert missing.value.file.startswith(gone)
    assert missing.value.file in missing.value.message


@pytest.mark.parametrize("folder", ["", "2_Dense/"])
def test_pickles_of_more_than_tensors_are_refused(folder: str, copy_of: Callable[..., Path]) -> None:
    directory = copy_of(FULL_CHAIN)
    (directory / f"{folder}model.safetensors").rename(directory / f"{folder}pytorch_model.bin")
    with pytest.raises(ModelRefused, match=f"{folder}pytorch_model.bin") as refused:
        resolve(str(directory))
    assert "safetensors" in str(refused.value.hint)


@pytest.mark.parametrize("folder", ["", "2_Dense/"])
@pytest.mark.parametrize("size_bytes", [0, 4, 100, -1])
def test_a_file_cut_short_is_refused(folder: str, size_bytes: int, copy_of: Callable[..., Path]) -> None:
    path = copy_of(FULL_CHAIN) / f"{folder}model.safetensors"
    path.write_bytes(path.read_bytes()[:size_bytes])
    with pytest.raises(ModelRefused, match=f"{folder}model.safetensors"):
        resolve(str(path.parents[1] if folder else path.parent))


def test_weights_of_another_shape_are_refused(copy_of: Callable[..., Path]) -> None:
    directory = copy_of("bert")
    edit(directory, "config.json", vocab_size=701)
    with pytest.raises(ModelRefused, match=r"word_embeddings.weight has shape \(700, 32\)"):
        resolve(str(directory))


def test_broken_json_is_refused(copy_of: Callable[..., Path]) -> None:
    directory = copy_of("bert")
    for content in ("{", "[]", ""):
        (directory / "config.json").write_text(content)
        with pytest.raises(ModelRefused, match=r"config\.json"):
            resolve(str(directory))


def test_a_bare_encoder_needs_its_pooling_stated(copy_of: Callable[..., Path]) -> None:
    directory = copy_of("bert")
    for file in ("modules.json", "1_Pooling/config.json"):
        (directory / file).unlink()
    with pytest.raises(MissingFile, match=r"modules\.json") as missing:
        resolve(str(directory))
    assert "never guessed" in str(missing.value.hint)
    (directory / "shoal.yaml").write_text("pooling: cls\nnormalize: true\nmatryoshka_dimensions: [8, 16]\n")
    spec = resolve(str(directory))
    assert spec.modules == (Pooling(("cls",)), Normalize())
    assert spec.matryoshka_dimensions == (8, 16)
    (directory / "shoal.yaml").write_text("poling: cls\n")
    with pytest.raises(ModelRefused, match=r"shoal\.yaml.*poling"):
        resolve(str(directory))


def test_dropout_does_nothing_at_inference(copy_of: Callable[..., Path]) -> None:
    directory = copy_of("bert")
    expected = facts(resolve(str(directory)))
    rows = json.loads((directory / "modules.json").read_text())
    rows.append({"idx": 9, "name": "9", "path": "9_Dropout", "type": "sentence_transformers.models.Dropout"})
    (directory / "modules.json").write_text(json.dumps(rows))
    assert facts(resolve(str(directory))) == expected


def test_a_spec_crosses_to_another_process(tiny_model: Callable[..., Path]) -> None:
    spec = resolve(str(tiny_model(FULL_CHAIN)))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(spec), type=ModelSpec) == spec
