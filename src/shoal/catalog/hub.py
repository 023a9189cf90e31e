"""Models on the hub: the local cache first, then a download of the needed files only. The one file that may go online.

A model that lies complete in the cache costs no packet, whether HF_HUB_OFFLINE is set or not; `shoal models pull`
fetches a newer commit. There is no other download host to fall back to.
"""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

from shoal.errors import NotReady, UnknownModel

__all__ = ["cached_snapshot", "download_snapshot", "is_hub_id", "snapshot_revision"]

_NEEDED = [
    f"{folder}{name}"
    for folder in ("", "[0-9]_*/")
    for name in (
        "config.json",
        "model.safetensors",
        "model.safetensors.index.json",
        "model-*-of-*.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "sentence_*_config.json",
        "chat_template.jinja",
    )
] + [
    "modules.json",
    "config_sentence_transformers.json",
    "artifact.metadata",
    "colbert_linear.*",
    "sparse_linear.*",
]
_TORCH_WEIGHTS = [f"{folder}pytorch_model{name}" for folder in ("", "[0-9]_*/") for name in (".bin*", "-*-of-*.bin")]
"""Fetched only where safetensors are missing."""


def is_hub_id(name: str) -> bool:
    """Whether a name has the form `organisation/model`."""
    return re.fullmatch(r"[\w.-]+/[\w.-]+", name) is not None and ".." not in name


def cached_snapshot(hub_id: str, revision: str = "") -> Path | None:
    """The cached directory of a revision, complete or not; None without one. Sends nothing."""
    from huggingface_hub import constants

    storage = Path(constants.HF_HUB_CACHE) / constants.REPO_ID_SEPARATOR.join(("models", *hub_id.split("/")))
    if not storage.is_dir():
        return None  # Spares the import of the hub's client, which takes a fraction of a second.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, revision=revision or None, local_files_only=True))
    except LocalEntryNotFoundError as error:
        # Newer versions know that a snapshot is partial and say where it lies; which file matters is judged elsewhere.
        partial = getattr(error, "snapshot_path", None)
        return Path(partial) if partial else None


def download_snapshot(
    hub_id: str, revision: str = "", *, takes_torch_files: bool = False, takes_code: bool = False
) -> Path:
    """Fetch what is missing of a revision, and return its directory.

    Args:
        takes_torch_files: weights that torch saved too, for a model that has no others.
        takes_code: Python files too.

    Raises:
        UnknownModel: the hub has no such model or revision, asks for permission, or allows no such name.
        NotReady: the hub cannot be reached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    shown = f"{hub_id}@{revision}" if revision else hub_id
    options: dict[str, Any] = {} if sys.stderr.isatty() else {"tqdm_class": _silent_progress()}
    fetch = partial(snapshot_download, hub_id, revision=revision or None, library_name="shoal", **options)
    wanted = (_TORCH_WEIGHTS if takes_torch_files else []) + (["*.py"] if takes_code else [])
    try:
        path = fetch(allow_patterns=[*_NEEDED, *wanted])
    except RepositoryNotFoundError as error:
        raise UnknownModel(
            f"Model {shown!r} is not on the hub, or not open to you.", hint="If it is private, log in: hf auth login."
        ) from error
    except LocalEntryNotFoundError as error:
        raise NotReady(
            f"Model {shown!r} is not whole in the cache, and the hub cannot be reached: {error}",
            hint="Check the network, or name a local directory.",
        ) from error
    except (HfHubHTTPError, HFValidationError) as error:
        raise UnknownModel(f"Model {shown!r} cannot be fetched from the hub: {error}") from error
    return Path(path)


def snapshot_revision(directory: Path) -> str:
    """The commit of a cached snapshot: the cache names the directory after it."""
    return directory.name if re.fullmatch(r"[0-9a-f]{40}", directory.name) else ""


def _silent_progress() -> Any:
    from huggingface_hub.utils.tqdm import tqdm

    return type("SilentProgress", (tqdm,), {"__init__": _start_silently(tqdm.__init__)})


def _start_silently(start: Any) -> Any:
    return lambda bar, *args, **kwargs: start(bar, *args, **{**kwargs, "disable": True})
