"""Files that are no text, or not where they should be: one clear line, no traceback."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shoal.bench.arrivals import read_trace
from shoal.bench.neighbours import read_collection
from shoal.bench.texts import read_texts
from shoal.cli.root import cli
from shoal.errors import InvalidRequest

BINARY = b"\x00\x9f\x92\x96" * 8
UTF_16 = "one text".encode("utf-16")
DOCUMENTS = [("d1", "one")]


def shoal_bench(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["bench", *arguments])


@pytest.mark.parametrize("content", [BINARY, UTF_16], ids=["binary", "UTF-16"])
def test_what_is_no_text_is_refused_with_its_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "given"
    path.write_bytes(content)
    expected = f"Line 1 of {path} cannot be read: .*utf-8"
    with pytest.raises(InvalidRequest, match=expected):
        read_texts(path)
    with pytest.raises(InvalidRequest, match=expected):
        read_trace(path)
    with pytest.raises(InvalidRequest, match=expected):
        read_collection(DOCUMENTS, DOCUMENTS, path)


def test_a_line_further_down_is_named_and_a_byte_order_mark_is_none_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\n" + "zwei\u2028drei".encode())
    assert read_texts(path) == ["one", "zwei\u2028drei"]
    path.write_bytes(b"one\ntwo\xff\n")
    with pytest.raises(InvalidRequest, match="Line 2 of"):
        read_texts(path)


def test_what_cannot_be_unpacked_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    for content in (BINARY, gzip.compress(b"one text, then another")[:-12]):
        path.write_bytes(content)
        with pytest.raises(InvalidRequest, match="cannot be unpacked"):
            read_texts(path)


def test_times_and_gains_are_finite(tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_text('1\n"nan"\n')
    with pytest.raises(InvalidRequest, match="Line 2"):
        read_trace(path)
    path.write_text("header\nd1\td1\tinf\n")
    with pytest.raises(InvalidRequest, match="Line 2"):
        read_collection(DOCUMENTS, DOCUMENTS, path)


def test_the_commands_say_it_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_bytes(BINARY)
    given = str(path)
    for arguments in (
        ("--text", given, "tei+http://127.0.0.1:9"),
        ("--trace", given, "tei+http://127.0.0.1:9"),
        ("compare", "tei+http://127.0.0.1:9", "tei+http://127.0.0.1:9", "--text", given),
    ):
        result = shoal_bench(*arguments)
        assert result.exit_code == 1
        assert "cannot be read" in result.output


@pytest.mark.parametrize("kind", ["shoal-rerank", "shoal-sparse"])
def test_only_dense_vectors_are_compared(tmp_path: Path, kind: str) -> None:
    text = tmp_path / "a.txt"
    text.write_text("one\ntwo\n")
    result = shoal_bench("compare", f"a={kind}+http://127.0.0.1:9#m", "tei+http://127.0.0.1:9", "--text", str(text))
    assert result.exit_code == 1
    assert f"a is asked as {kind}, which gives no dense vectors" in result.output


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_where_a_report_goes_is_looked_at_before_the_first_request(tmp_path: Path, option: str) -> None:
    (tmp_path / "file").touch()
    for directory in ("nowhere", "file"):
        result = shoal_bench(option, str(tmp_path / directory / "x"), "tei+http://127.0.0.1:9")
        assert result.exit_code == 2
        assert f"{directory} is no directory" in " ".join(result.output.split())
