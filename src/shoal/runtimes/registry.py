"""Which runtimes there are: a name and where its class is, imported only when it is used."""

from __future__ import annotations

import importlib
from typing import cast

from shoal.errors import ModelRefused
from shoal.runtimes.base import Runtime

__all__ = ["RUNTIMES", "open_runtime"]

RUNTIMES: dict[str, str] = {
    "fake": "shoal.runtimes.fake:FakeRuntime",
    "openvino": "shoal.runtimes.openvino.runtime:OpenVINORuntime",
    "torch": "shoal.runtimes.torch.runtime:TorchRuntime",
}
"""Name to "module:Class"."""

_PACKAGES: dict[str, tuple[str, ...]] = {"openvino": ("openvino",), "torch": ("torch", "transformers")}
"""Runtime to the optional packages that it stands on."""


def open_runtime(name: str) -> Runtime:
    """The runtime of that name, its library imported.

    Raises:
        ModelRefused: no such runtime, or its library is not installed; says which there are, or what to install.
    """
    if name not in RUNTIMES:
        raise ModelRefused(f"There is no runtime {name!r}.", hint=f"Runtimes: {', '.join(sorted(RUNTIMES))}.")
    module_name, _, class_name = RUNTIMES[name].partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES.get(name, ()):
            raise
        raise ModelRefused(
            f"The runtime {name!r} needs the package {package}, which is not installed.",
            hint=f"Install it with: pip install {' '.join(_PACKAGES[name])}",
        ) from error
    return cast(Runtime, getattr(module, class_name)())
