"""Names of runtimes."""

from __future__ import annotations

import sys

import pytest

from shoal.errors import ModelRefused
from shoal.runtimes import registry


@pytest.mark.parametrize("name", sorted(registry.RUNTIMES))
def test_every_row_opens(name: str) -> None:
    assert registry.open_runtime(name).name == name


def test_an_unknown_name_lists_what_exists() -> None:
    with pytest.raises(ModelRefused, match=r"'gpu'.*fake, openvino"):
        registry.open_runtime("gpu")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("shoal.runtimes.openvino")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(ModelRefused, match=r"needs the package openvino.*pip install openvino"):
        registry.open_runtime("openvino")
