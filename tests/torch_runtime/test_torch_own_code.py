"""Models that bring their own code: refused, unless the operator lists the very commit; then torch runs it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest
import transformers.dynamic_module_utils
from tests.torch_runtime.batches import FLOAT32, assert_equal, batches

from hub_standin import COMMIT, lay_out_cache
from shoal.catalog import resolve
from shoal.errors import ModelRefused
from shoal.runtimes.openvino.runtime import OpenVINORuntime
from shoal.runtimes.torch.runtime import TorchRuntime
from shoal.settings import ModelSettings

NAME = "tiny/own"
TEXTS = ["cat", "The quick brown fox jumps.", "hello world " * 20]
CODE = """
from transformers import BertConfig, BertModel

class OwnConfig(BertConfig):
    model_type = "own-bert"

class OwnModel(BertModel):
    config_class = OwnConfig

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.last_hidden_state = -output.last_hidden_state
        return output
"""


@pytest.fixture
def plain(tiny_model: Callable[..., Path]) -> Path:
    """The same model without code of its own."""
    return tiny_model("bert")


@pytest.fixture
def directory(plain: Path, tmp_path: Path) -> Path:
    """A model whose vectors point the other way, if its code is run."""
    copy = shutil.copytree(plain, tmp_path / "model")
    config = json.loads((copy / "config.json").read_text())
    config |= {"model_type": "own-bert", "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}}
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "own.py").write_text(CODE)
    return copy


@pytest.fixture
def cached(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The snapshot of that model in the hub's cache."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return lay_out_cache(tmp_path / "cache", NAME, directory)


def trusting(code: str) -> ModelSettings:
    return ModelSettings(trusted_code=code)


@pytest.mark.parametrize("listed", ["", f"tiny/other@{COMMIT}", f"{NAME}@{'f' * 40}"])
@pytest.mark.usefixtures("cached")
def test_code_is_refused_unless_its_very_commit_is_listed(listed: str) -> None:
    with pytest.raises(ModelRefused, match="asks for code from tiny/own, which is not trusted here") as refused:
        resolve(NAME, trusting(listed))
    assert refused.value.param == "config.json:auto_map"
    assert f"SHOAL_TRUSTED_CODE={NAME}@{COMMIT}" in str(refused.value.hint)


@pytest.mark.parametrize("listed", [NAME, f"{NAME}@main", f"{NAME}@{COMMIT[:12]}", COMMIT])
@pytest.mark.usefixtures("cached")
def test_what_may_move_cannot_be_listed(listed: str) -> None:
    with pytest.raises(ModelRefused, match="all 40 digits"):
        resolve(NAME, trusting(listed))


def test_code_in_a_directory_without_a_commit_is_never_run(directory: Path) -> None:
    with pytest.raises(ModelRefused, match="from the hub's cache only"):
        resolve(str(directory), trusting(f"{NAME}@{COMMIT}"))


@pytest.mark.usefixtures("cached")
def test_listed_code_is_run_by_torch_and_by_no_other_runtime(runtime: TorchRuntime, plain: Path) -> None:
    spec = resolve(NAME, trusting(f" org/else@{'0' * 40}, {NAME}@{COMMIT}"))
    assert (spec.code, spec.revision) == ((f"{NAME}@{COMMIT}",), COMMIT)
    with pytest.raises(ModelRefused, match="no graph for family 'own-bert, own code'"):
        OpenVINORuntime().load(spec, FLOAT32)
    session = runtime.load(spec, FLOAT32)
    (batch, *_) = batches(plain, TEXTS)
    vectors = session.run(batch)["dense"]
    assert_equal(vectors, -runtime.load(resolve(str(plain)), FLOAT32).run(batch)["dense"])
    assert np.abs(vectors).max() > 0


def test_code_of_another_repository_must_be_listed_too(cached: Path) -> None:
    file = cached / "config.json"
    config = json.loads(file.read_text())
    config["auto_map"]["AutoModel"] = "tiny/code--own.OwnModel"
    file.unlink()
    file.write_text(json.dumps(config))
    with pytest.raises(ModelRefused, match="asks for code from tiny/code, which") as refused:
        resolve(NAME, trusting(f"{NAME}@{COMMIT}"))
    assert "SHOAL_TRUSTED_CODE=tiny/code@COMMIT" in str(refused.value.hint)
    spec = resolve(NAME, trusting(f"{NAME}@{COMMIT},tiny/code@{'a' * 40}"))
    assert spec.code == (f"tiny/code@{'a' * 40}", f"{NAME}@{COMMIT}")
