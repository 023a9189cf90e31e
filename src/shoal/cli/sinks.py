"""Where `shoal embed` puts vectors: .npy, .jsonl, .parquet, or JSON lines on standard output. All write as they go.

A file is written as NAME.part and takes its name when it is complete: a file of that name is never half a result. What
a failure leaves in NAME.part can be read all the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import orjson

from shoal.cli.texts import Line
from shoal.client import EmbedResult
from shoal.errors import ShoalError

__all__ = ["JsonLines", "NumpyFile", "ParquetFile", "Sink", "open_sink", "part_of"]


class Sink(Protocol):
    """Takes rows in order."""

    def write(self, lines: Sequence[Line], result: EmbedResult) -> None: ...

    def finish(self) -> None:
        """Complete the file; without any row it stays empty."""
        ...


class JsonLines:
    """One object a text: `line`, `embedding`, `num_tokens`, `truncated`."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, lines: Sequence[Line], result: EmbedResult) -> None:
        for line, vector, num_tokens, truncated in zip(
            lines, result.vectors, result.num_tokens, result.truncated, strict=True
        ):
            row = {"line": line.number, "embedding": vector, "num_tokens": num_tokens, "truncated": truncated}
            self._stream.write(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE))
        self._stream.flush()

    def finish(self) -> None:
        self._stream.flush()


class NumpyFile:
    """One array [n, dimensions], float32 or float16. The number of rows is filled in at the end."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._num_rows = 0
        self._dtype = ""
        self._dimensions = 0

    def write(self, lines: Sequence[Line], result: EmbedResult) -> None:
        if not self._num_rows:
            self._dtype, self._dimensions = result.stored.dtype.str, result.dimensions
            self._write_header()
        self._stream.write(result.stored.tobytes())
        self._num_rows += len(lines)

    def _write_header(self) -> None:
        # NumPy pads the header so that the first axis may grow: it is as long at the end as at the start.
        shape = (self._num_rows, self._dimensions)
        header = {"descr": self._dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._stream, header)

    def finish(self) -> None:
        if self._num_rows:
            self._stream.seek(0)
            self._write_header()


class ParquetFile:
    """Columns `line`, `embedding` (a list of fixed size), `num_tokens`, `truncated`."""

    _ROWS_PER_GROUP = 8192

    def __init__(self, stream: BinaryIO) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ModuleNotFoundError as error:
            raise ShoalError(
                "Writing .parquet needs pyarrow, which is not installed.",
                hint="Install it with: pip install pyarrow",
            ) from error
        self._pyarrow = pyarrow
        self._stream = stream
        self._writer: Any = None
        self._waiting: list[Any] = []
        self._num_waiting = 0

    def write(self, lines: Sequence[Line], result: EmbedResult) -> None:
        arrow = self._pyarrow
        numbers = arrow.array(result.stored.reshape(-1))
        columns = {
            "line": arrow.array([line.number for line in lines], arrow.int64()),
            "embedding": arrow.FixedSizeListArray.from_arrays(numbers, result.dimensions),
            "num_tokens": arrow.array(result.num_tokens, arrow.int32()),
            "truncated": arrow.array(result.truncated, arrow.bool_()),
        }
        self._waiting.append(arrow.table(columns))
        self._num_waiting += len(lines)
        if self._num_waiting >= self._ROWS_PER_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        table = self._pyarrow.concat_tables(self._waiting)
        if self._writer is None:
            self._writer = self._pyarrow.parquet.ParquetWriter(self._stream, table.schema)
        self._writer.write_table(table)
        self._waiting, self._num_waiting = [], 0

    def finish(self) -> None:
        if self._waiting:
            self._write_group()
        if self._writer is not None:
            self._writer.close()


_KINDS: dict[str, type[JsonLines] | type[NumpyFile] | type[ParquetFile]] = {
    ".npy": NumpyFile,
    ".jsonl": JsonLines,
    ".parquet": ParquetFile,
}


@contextlib.contextmanager
def open_sink(path: Path | None, stdout: BinaryIO) -> Iterator[Sink]:
    """The sink for a path, chosen by its extension; standard output for None."""
    if path is None:
        yield JsonLines(stdout)
        return
    part = part_of(path)
    try:
        with part.open("w+b") as stream:
            sink: Sink = _KINDS[path.suffix](stream)
            try:
                yield sink
            finally:
                sink.finish()
    except BaseException:
        if part.is_file() and not part.stat().st_size:
            part.unlink()
        raise
    part.replace(path)


def part_of(path: Path) -> Path:
    """What a file is called until it is complete."""
    return path.with_name(path.name + ".part")
