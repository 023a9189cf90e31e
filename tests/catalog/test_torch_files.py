"""Files that torch.save wrote: tensors are found where they lie, and nothing in a file is ever run."""

from __future__ import annotations

import contextlib
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.catalog.torch_files import read_torch_file
from shoal.errors import ModelRefused
from shoal.runtimes.openvino.weights import open_weights


class Caller:
    """What runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self._command,)


def layer() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.LayerNorm(6))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["state", "dictionary", "parameters", "half", "bfloat16"])
def test_tensors_are_those_that_torch_saved(kind: str, protocol: int, tmp_path: Path) -> None:
    module = layer()
    if kind in ("half", "bfloat16"):
        module = module.to(getattr(torch, kind))
    content: Any = module.state_dict()
    if kind == "dictionary":
        content = {"part": torch.arange(12.0).reshape(3, 4)[1:], "number": torch.tensor(3.5)}
    if kind == "parameters":
        content = {name: torch.nn.Parameter(tensor) for name, tensor in content.items()}
    file = tmp_path / "tensors.pt"
    torch.save(content, file, pickle_protocol=protocol)
    assert {name: found.shape for name, found in read_torch_file(file).items()} == {
        name: tuple(tensor.shape) for name, tensor in content.items()
    }
    weights = open_weights([file])
    for name, tensor in content.items():
        np.testing.assert_array_equal(weights.take(name, tensor.shape), tensor.detach().float().numpy())


REFUSED: dict[str, tuple[Any, str]] = {
    "a module": (layer(), "torch.nn.modules.container Sequential"),
    "a list": ([torch.zeros(2)], "EMPTY_LIST"),
    "no tensor": ({"name": "value"}, "got `str`"),
    "transposed": ({"weight": torch.zeros(3, 4).t()}, "C order"),
    "spread out": ({"weight": torch.zeros(3, 4)[:, ::2]}, "C order"),
    "sparse": ({"weight": torch.zeros(2, 2).to_sparse()}, "it names"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_dictionary_of_plain_tensors_is_refused(case: str, tmp_path: Path) -> None:
    content, reason = REFUSED[case]
    file = tmp_path / "tensors.pt"
    torch.save(content, file)
    with pytest.raises(ModelRefused, match=reason) as refused:
        read_torch_file(file, "folder/tensors.pt")
    assert refused.value.param == "folder/tensors.pt"


def test_code_in_a_pickle_is_not_run(tmp_path: Path) -> None:
    file, trace = tmp_path / "tensors.pt", tmp_path / "was-here"
    content = {"weight": torch.zeros(2), "evil": Caller(f"touch {trace}")}
    torch.save(content, file)
    with pytest.raises(ModelRefused, match="posix system"):
        read_torch_file(file)
    assert not trace.exists()
    torch.load(file, weights_only=False)
    assert trace.exists(), "the file is as harmful as it is meant to be"


def test_older_and_broken_files_are_refused(tmp_path: Path) -> None:
    torch.save(layer().state_dict(), tmp_path / "older.bin", _use_new_zipfile_serialization=False)
    torch.save(layer().state_dict(), tmp_path / "whole.bin")
    whole = (tmp_path / "whole.bin").read_bytes()
    (tmp_path / "short.bin").write_bytes(whole[: len(whole) // 2])
    with (
        zipfile.ZipFile(tmp_path / "whole.bin") as archive,
        zipfile.ZipFile(tmp_path / "pressed.bin", "w", zipfile.ZIP_DEFLATED) as pressed,
    ):
        for name in archive.namelist():
            pressed.writestr(name, archive.read(name))
    for name in ("older", "short", "pressed"):
        with pytest.raises(ModelRefused, match=f"{name}.bin"):
            read_torch_file(tmp_path / f"{name}.bin")


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@given(noise=st.binary(max_size=200), place=st.integers(0, 400))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_read_or_refused(noise: bytes, place: int, tmp_path: Path) -> None:
    """A pickle with bytes of it replaced: whatever it says, it is an answer or a refusal."""
    plain = pickle.dumps({"a": (1, 2)}, 2) if place > 300 else _pickle_of(tmp_path)
    changed = plain[:place] + noise + plain[place + len(noise) :]
    with zipfile.ZipFile(tmp_path / "noise.pt", "w") as archive:
        archive.writestr("archive/data.pkl", changed)
    with contextlib.suppress(ModelRefused):
        assert isinstance(read_torch_file(tmp_path / "noise.pt"), dict)


def _pickle_of(tmp_path: Path) -> bytes:
    file = tmp_path / "plain.pt"
    if not file.exists():
        torch.save(layer().state_dict(), file)
    with zipfile.ZipFile(file) as archive:
        return archive.read("plain/data.pkl")
