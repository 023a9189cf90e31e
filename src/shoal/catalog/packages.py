"""Models that Python packages carry. A package is found, never imported: its code is not run."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from shoal.errors import ModelRefused, UnknownModel

__all__ = ["package_directory", "require_hashes"]


def package_directory(package: str) -> Path | None:
    """The directory of model files in an installed package: the package's own, or one just below it.

    Raises:
        UnknownModel: the package is installed but holds no model, or several.
    """
    root = _root(package)
    if root is None:
        return None
    candidates = [root, *sorted(child for child in root.iterdir() if child.is_dir())]
    found = [candidate for candidate in candidates if (candidate / "config.json").is_file()]
    if len(found) != 1:
        raise UnknownModel(f"Package {package!r} holds {len(found)} directories with a config.json; one is needed.")
    return found[0]


def _root(package: str) -> Path | None:
    if not package.isidentifier():
        return None
    spec = importlib.util.find_spec(package)
    locations = spec.submodule_search_locations if spec else None
    return Path(next(iter(locations))) if locations else None


def require_hashes(directory: Path, hashes: dict[str, str]) -> None:
    """Raises:
    ModelRefused: a file's sha256 is not the stated one.
    """
    for file, wanted in hashes.items():
        with (directory / file).open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != wanted:
            raise ModelRefused(
                f"{file}: its sha256 is {found}, but the catalog says {wanted}.",
                param=file,
                hint=f"Another file than the one published lies in {directory}; reinstall the package.",
            )
