"""Where `shoal embed` takes texts from: arguments, a file, standard input. Reads a line at a time and keeps none."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, cast

import msgspec

from shoal.errors import InvalidRequest

__all__ = ["Arguments", "Line", "Lines", "Texts", "open_lines"]

_JSON_LINES = {".jsonl", ".ndjson"}


class Line(NamedTuple):
    """A text and where it stands, counted from 1; or what is wrong with that line."""

    number: int
    text: str = ""
    error: InvalidRequest | None = None


class Texts(Protocol):
    """A source of texts, and how far it has been read (in whatever unit it counts; `total` None = unknown)."""

    @property
    def total(self) -> int | None: ...

    @property
    def num_read(self) -> int: ...

    def place(self, number: int) -> str:
        """How a message names a line."""
        ...

    def __iter__(self) -> Iterator[Line]: ...


class Arguments:
    """Texts of the command line."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self.total = len(texts)
        self.num_read = 0

    def place(self, number: int) -> str:
        return f"text {number}"

    def __iter__(self) -> Iterator[Line]:
        for text in self._texts:
            self.num_read += 1
            yield Line(self.num_read, text)


class Lines:
    """Lines of a stream: each a text, or a JSON object that holds one under `field`. Counts bytes."""

    def __init__(self, name: str, stream: BinaryIO, field: str | None, total: int | None = None) -> None:
        self._name = name
        self._stream = stream
        self._field = field
        self.total = total
        self.num_read = 0

    def place(self, number: int) -> str:
        return f"line {number} of {self._name}"

    def __iter__(self) -> Iterator[Line]:
        for number, raw in enumerate(self._raw_lines(), start=1):
            self.num_read += len(raw)
            if self._field is not None and not raw.strip():
                continue
            try:
                yield Line(number, self._text(raw, is_first=number == 1))
            except InvalidRequest as error:
                yield Line(number, error=error)

    def _raw_lines(self) -> Iterator[bytes]:
        try:
            yield from self._stream
        except (EOFError, zlib.error) as error:
            raise InvalidRequest(f"{self._name} cannot be unpacked: {error}.") from error

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def _text(self, raw: bytes, *, is_first: bool) -> str:
        try:
            text = raw.decode("utf-8-sig" if is_first else "utf-8")
            if self._field is None:
                return text.removesuffix("\n").removesuffix("\r")
            record = msgspec.json.decode(text)
        except (UnicodeDecodeError, msgspec.DecodeError) as error:
            raise InvalidRequest(f"cannot be read: {error}.") from error
        if not isinstance(record, dict):
            raise InvalidRequest(f"must be a JSON object with a text under {self._field!r}.")
        if not isinstance(record.get(self._field), str):
            keys = ", ".join(str(key) for key in record)
            raise InvalidRequest(
                f"has no text under {self._field!r}; its keys are: {keys}.", hint="Choose with --field."
            )
        return cast(str, record[self._field])


def open_lines(path: Path | None, field: str | None, stdin: BinaryIO) -> Lines:
    """A file, or standard input for None. `field` reads JSON lines; a file named .jsonl holds such anyway."""
    if path is None:
        return Lines("standard input", stdin, field)
    is_compressed = path.suffix == ".gz"
    if (path.with_suffix("") if is_compressed else path).suffix in _JSON_LINES:
        field = field or "text"
    if is_compressed:
        return Lines(str(path), cast(BinaryIO, gzip.open(path, "rb")), field)
    return Lines(str(path), path.open("rb"), field, path.stat().st_size)
