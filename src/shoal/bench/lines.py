"""Files of lines as people hand them over: UTF-8, packed or not. Must not know what a line means."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from shoal.errors import InvalidRequest

__all__ = ["read_lines"]


def read_lines(path: Path) -> list[str]:
    """The lines of a file without their ends; a .gz is unpacked.

    Raises:
        InvalidRequest: it cannot be unpacked, or a line is no UTF-8; names the line.
    """
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidRequest(f"{path} cannot be unpacked: {error}.") from error
    return [_decoded(path, number, line) for number, line in enumerate(content.splitlines(), 1)]


def _decoded(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"Line {number} of {path} cannot be read: {error}.", hint="It must be text in UTF-8."
        ) from error
