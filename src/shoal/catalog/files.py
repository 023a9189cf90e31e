"""Reading a model's files, and saying which file and key is at fault. Knows JSON, not what any key means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from shoal.errors import ModelRefused

__all__ = ["MissingFile", "ModelFiles", "refusal"]


class MissingFile(ModelRefused):
    """A file that the model needs is not there.

    Attributes:
        file: its path inside the model, such as `1_Pooling/config.json`.
        directory: of the model.
    """

    def __init__(self, file: str, directory: Path, *, hint: str | None = None) -> None:
        super().__init__(f"{file}: the model needs this file, and {directory} does not hold it.", param=file, hint=hint)
        self.file = file
        self.directory = directory


def refusal(file: str, key: str, reason: str, hint: str | None = None) -> ModelRefused:
    """The error for a key that is not understood; `reason` completes the sentence `<file>: <key> ...`."""
    return ModelRefused(f"{file}: {key} {reason}", param=f"{file}:{key}", hint=hint)


class ModelFiles:
    """A directory of model files.

    Attributes:
        root: absolute path.
        ignored_keys: keys that the user vouches for (`ModelSettings.ignore_config_keys`).
        origin: `organisation/model@commit` if the directory is a snapshot in the hub's cache, else "".
        trusted_code: origins whose code may be run.
    """

    def __init__(
        self,
        root: Path,
        ignored_keys: frozenset[str] = frozenset(),
        *,
        origin: str = "",
        trusted_code: frozenset[str] = frozenset(),
    ) -> None:
        self.root = root.absolute()
        self.ignored_keys = ignored_keys
        self.origin = origin
        self.trusted_code = trusted_code

    def path(self, file: str) -> Path:
        return self.root / file

    def has(self, file: str) -> bool:
        """Whether the file is there; a dangling link into a hub cache is not."""
        return self.path(file).is_file()

    def require(self, file: str, hint: str | None = None) -> Path:
        """Its path.

        Raises:
            MissingFile: it is not there.
        """
        if not self.has(file):
            raise MissingFile(file, self.root, hint=hint)
        return self.path(file)

    def json(self, file: str, hint: str | None = None) -> Any:
        """Its contents.

        Raises:
            MissingFile: it is not there.
            ModelRefused: it is not JSON.
        """
        content = self.require(file, hint).read_bytes()
        try:
            return msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ModelRefused(f"{file}: not valid JSON: {error}", param=file) from error

    def object(self, file: str, hint: str | None = None) -> dict[str, Any]:
        """As `json`, and it must be an object."""
        content = self.json(file, hint)
        if not isinstance(content, dict):
            raise ModelRefused(f"{file}: holds a {type(content).__name__}, not an object.", param=file)
        return content

    def optional_object(self, file: str) -> dict[str, Any]:
        """As `object`, {} if the file is not there."""
        return self.object(file) if self.has(file) else {}

    def refuse_unknown(self, file: str, content: dict[str, Any], known: frozenset[str]) -> None:
        """Each key must be known, or vouched for by the user.

        Raises:
            ModelRefused: names file, key and how to vouch for it.
        """
        for key in content:
            if key not in known and key not in self.ignored_keys:
                raise refusal(
                    file,
                    key,
                    "is not known here, so it might change the vectors.",
                    f"If you know that it does not, set SHOAL_IGNORE_CONFIG_KEYS={key}.",
                )
