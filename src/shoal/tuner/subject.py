"""What a search is about: everything that makes its figures incomparable with another's if it differs. Runs nothing."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Sequence
from typing import Any

import msgspec

import shoal
from shoal.catalog.profiles import usable_cores
from shoal.catalog.spec import ModelSpec
from shoal.settings import ModelSettings, WorkerSettings, declarations
from shoal.tuner.objectives import Objective
from shoal.tuner.space import Space

__all__ = ["subject_of"]

_WITHOUT_EFFECT = {"worker_host", "worker_port", "pin", "keep_dead_bodies", "drain_s", "profile"}
"""Settings of the worker that change no figure."""


def subject_of(
    spec: ModelSpec,
    objective: Objective,
    space: Space,
    texts: Sequence[str],
    worker: WorkerSettings,
    models: ModelSettings,
    task_digest: str,
) -> dict[str, Any]:
    """The subject of a ledger; a setting stands in it under its own name, where it is not the default.

    Args:
        worker: of the default configuration, its runtime chosen.
        task_digest: see `task.Retrieval.digest`; "" without a task.
    """
    return {
        "model": spec.id,
        "revision": spec.revision,
        "objective": objective.name,
        "seconds": objective.stretch_s,
        "texts": _digest(list(texts)),
        "task": task_digest,
        "cores": usable_cores(),
        "knobs": msgspec.to_builtins(space.knobs),
        "shoal": shoal.__version__,
        "runtime_version": _version(worker.runtime),
        **_settings(models),
        **_settings(worker),
        "runtime": worker.runtime,
    }


def _settings(group: ModelSettings | WorkerSettings) -> dict[str, Any]:
    values = {one.name: (getattr(group, one.name), one.default) for one in declarations(type(group))}
    return {
        name: value for name, (value, default) in values.items() if value != default and name not in _WITHOUT_EFFECT
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]


def _version(runtime: str) -> str:
    """Of the library of the runtime's name, as it is installed; it is not imported for that. "" where there is none."""
    try:
        return importlib.metadata.version(runtime)
    except importlib.metadata.PackageNotFoundError:
        return ""
