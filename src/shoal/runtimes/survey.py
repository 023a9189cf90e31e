"""Which runtimes work on this machine. `python -m shoal.runtimes.survey NAME` tries one and prints a `Finding` as JSON.

Each is tried in a process of its own: a library that crashes, or takes seconds to import, harms nobody.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from shoal.errors import ShoalError
from shoal.runtimes.registry import RUNTIMES, open_runtime

__all__ = ["Finding", "choose_runtime", "survey"]

_LIMIT_S = 60.0

_GPU_FILES = ("/dev/nvidiactl", "/dev/dxg")
"""One of these is there if the kernel drives an NVIDIA GPU, the second under WSL."""


class Finding(msgspec.Struct, frozen=True):
    """What came of trying a runtime.

    Attributes:
        name: of the runtime.
        works: whether its library could be loaded.
        version: of the library.
        devices: what it finds to run on, in its own words.
        problem: why it does not work.
    """

    name: str
    works: bool
    version: str = ""
    devices: tuple[str, ...] = ()
    problem: str = ""


def survey(names: Iterable[str] | None = None) -> list[Finding]:
    """Try runtimes, None = all, side by side."""
    command = [sys.executable, "-m", "shoal.runtimes.survey"]
    tries = {
        name: subprocess.Popen([*command, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: S603
        for name in (RUNTIMES if names is None else names)
    }
    return [_outcome(name, process) for name, process in tries.items()]


@cache
def choose_runtime(wanted: str) -> str:
    """The runtime that a setting means: `auto` is torch where torch finds a CUDA device, else openvino.

    Costs nothing where there is no GPU, and as long as importing torch takes where there is one.
    """
    if wanted != "auto":
        return wanted
    if not any(Path(file).exists() for file in _GPU_FILES):
        return "openvino"
    (torch,) = survey(["torch"])
    return "torch" if any(device.startswith("cuda") for device in torch.devices) else "openvino"


def _outcome(name: str, process: subprocess.Popen[bytes]) -> Finding:
    try:
        stdout, stderr = process.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Finding(name, works=False, problem=f"it did not load within {_LIMIT_S:g} s")
    if process.returncode:
        last = stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return Finding(name, works=False, problem=last or f"its process ended with {process.returncode}")
    return msgspec.json.decode(stdout, type=Finding)


def _try(name: str) -> Finding:
    try:
        open_runtime(name)
    except ShoalError as error:
        return Finding(name, works=False, problem=str(error))
    version, devices = _LIBRARIES[name]() if name in _LIBRARIES else ("", ("CPU",))
    return Finding(name, works=True, version=version, devices=devices)


def _openvino() -> tuple[str, tuple[str, ...]]:
    import openvino

    runtime: Any = openvino.Core()
    return openvino.__version__, tuple(
        f"{device}: {runtime.get_property(device, 'FULL_DEVICE_NAME')}" for device in runtime.available_devices
    )


def _torch() -> tuple[str, tuple[str, ...]]:
    import torch

    gpus = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    return str(torch.__version__), (*(f"cuda:{number}: {torch.cuda.get_device_name(number)}" for number in gpus), "cpu")


_LIBRARIES = {"openvino": _openvino, "torch": _torch}
"""How to ask a runtime's library for its version and devices."""


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_try(sys.argv[1])))
