"""`shoal embed`: from every kind of input to every kind of output, and what failures say and leave behind."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pty
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

import shoal
from client.wire_server import DIMENSIONS, WireServer, never, refuse, refuse_text, vector_of
from shoal.cli.embedding import Tally, embed_texts
from shoal.cli.sinks import JsonLines
from shoal.cli.texts import Line

TEXTS = [f"text number {number} é" for number in range(700)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return path


def vectors_of(texts: list[str]) -> np.ndarray:
    return np.stack([vector_of(text) for text in texts])


def test_arguments_to_json_lines(server: WireServer, run_shoal):
    done = run_shoal("embed", "first", "second", "--url", server.url)
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["line"], row["num_tokens"], row["truncated"]) for row in rows] == [(1, 5, False), (2, 6, False)]
    np.testing.assert_array_equal(
        np.array([row["embedding"] for row in rows], dtype=np.float32), vectors_of(["first", "second"])
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_file_to_npy(server: WireServer, run_shoal, corpus: Path, tmp_path: Path, dtype: str):
    output = tmp_path / "vectors.npy"
    done = run_shoal("embed", "-f", corpus, "-o", output, "--url", server.url, "--batch-items", 64, "--dtype", dtype)
    assert done.exit_code == 0, done.output
    np.testing.assert_array_equal(np.load(output), vectors_of(TEXTS).astype(dtype))
    assert np.load(output, mmap_mode="r").shape == (700, DIMENSIONS)
    assert f"{output}: 700 vectors of {DIMENSIONS}" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"corpus.txt", "vectors.npy"}
    assert all(len(body["input"]) <= 64 for body, _ in server.received)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_compressed_json_lines_to_parquet(server: WireServer, run_shoal, tmp_path: Path, dtype: str):
    source = tmp_path / "corpus.jsonl.gz"
    with gzip.open(source, "wt") as file:
        file.writelines(json.dumps({"_id": "x", "body": text}) + "\n\n" for text in TEXTS)
    output = tmp_path / "vectors.parquet"
    done = run_shoal("embed", "-f", source, "--field", "body", "-o", output, "--url", server.url, "--dtype", dtype)
    assert done.exit_code == 0, done.output
    table = pyarrow.parquet.read_table(output)
    assert table["line"].to_pylist() == list(range(1, 1400, 2))
    assert table["num_tokens"].to_pylist() == [len(text) for text in TEXTS]
    assert table.schema.field("embedding").type.list_size == DIMENSIONS
    vectors = np.array(table["embedding"].to_pylist(), dtype=dtype)
    np.testing.assert_array_equal(vectors, vectors_of(TEXTS).astype(dtype))


def test_many_rows_make_few_row_groups(server: WireServer, run_shoal, tmp_path: Path):
    output = tmp_path / "vectors.parquet"
    texts = "\n".join(str(number) for number in range(20_000))
    done = run_shoal("embed", "-o", output, "--url", server.url, input=texts)
    assert done.exit_code == 0, done.output
    file = pyarrow.parquet.ParquetFile(output)
    assert (file.metadata.num_rows, file.metadata.num_row_groups) == (20_000, 3)
    file.close()


@pytest.mark.parametrize("arguments", [[], ["-"], ["--file", "-"]])
def test_standard_input(server: WireServer, run_shoal, tmp_path: Path, arguments: list[str]):
    """Blank lines are texts too, so that rows and lines stay together; an end of line is no text."""
    output = tmp_path / "vectors.jsonl"
    done = run_shoal("embed", *arguments, "-o", output, "--url", server.url, input=b"\xef\xbb\xbfone\r\n\n two \nthree")
    assert done.exit_code == 0, done.output
    assert [body["input"] for body, _ in server.received] == [["one", "", " two ", "three"]]
    assert [json.loads(line)["line"] for line in output.read_text().splitlines()] == [1, 2, 3, 4]


def test_options_reach_the_server(server: WireServer, run_shoal):
    options = ["--model", "little", "--dimensions", 4, "--prompt-name", "query", "--no-normalize", "--no-truncate"]
    done = run_shoal("embed", "x", *options, "--url", server.url, "--timeout-s", 9, env={"SHOAL_API_KEY": "secret"})
    assert done.exit_code == 0, done.output
    body, headers = server.received[0]
    wanted = {"model": "little", "dimensions": 4, "prompt_name": "query", "normalize": False, "truncate": False}
    assert wanted.items() <= body.items()
    assert headers["authorization"] == "Bearer secret"
    assert float(headers["x-shoal-timeout"]) <= 9


def test_cut_texts_are_counted_aloud(server: WireServer, run_shoal, tmp_path: Path):
    done = run_shoal("embed", "x", "y" * 600, "-o", tmp_path / "v.npy", "--url", server.url)
    assert "1 texts were cut to the model's length" in done.stderr


def test_reads_no_further_than_it_has_requests_for(server: WireServer):
    """Memory does not grow with the input."""
    outcomes = []

    class Endless:
        total, num_read = None, 0

        def place(self, number: int) -> str:
            return f"line {number}"

        def __iter__(self) -> Iterator[Line]:
            while True:
                self.num_read += 1
                yield Line(self.num_read, str(self.num_read))

    class Stop(Exception):
        pass

    def on_outcome(outcome: object) -> None:
        outcomes.append(texts.num_read)
        if len(outcomes) == 20:
            raise Stop

    texts = Endless()
    with shoal.Client(server.url) as client, open(os.devnull, "wb") as nowhere, pytest.raises(Stop):
        embed_texts(
            texts,
            JsonLines(nowhere),
            client,
            {},
            Tally(),
            batch_items=10,
            concurrency=3,
            is_kept_going=False,
            on_outcome=on_outcome,
        )
    # When batch n is written, n + 2 are on their way, and one text beyond them told that the last of them is full.
    assert all(num_read <= (number + 3) * 10 + 1 for number, num_read in enumerate(outcomes))


BAD_LINES = {
    "not json": (b"{", "cannot be read"),
    "not an object": (b"[1]", "must be a JSON object"),
    "other key": (b'{"title": "x", "body": 5}', "has no text under 'text'; its keys are: title, body"),
    "no text": (b'{"text": 5}', "has no text under 'text'"),
    "not utf-8": (b'{"text": "\xff"}', "cannot be read"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_bad_line_is_named(server: WireServer, run_shoal, tmp_path: Path, case: str):
    raw, words = BAD_LINES[case]
    source = tmp_path / "corpus.jsonl"
    source.write_bytes(b'{"text": "good"}\n' * 11 + raw + b"\n" + b'{"text": "good"}\n' * 5)
    done = run_shoal("embed", "-f", source, "-o", tmp_path / "v.npy", "--batch-items", 4, "--url", server.url)
    assert done.exit_code == 1
    assert f"error: line 12 of {source} {words}" in done.stderr
    assert "8 texts were finished" in done.stderr
    assert np.load(tmp_path / "v.npy.part").shape == (8, DIMENSIONS)
    assert not (tmp_path / "v.npy").exists()


def test_a_line_that_the_server_refuses_is_named(server: WireServer, run_shoal, corpus: Path):
    server.always = refuse_text(TEXTS[345])
    done = run_shoal("embed", "-f", corpus, "--batch-items", 100, "--url", server.url)
    assert done.exit_code == 1
    assert f"error: line 346 of {corpus} is bad." in done.stderr
    assert len(done.stdout.splitlines()) == 300


def test_an_argument_that_is_refused_is_named(server: WireServer, run_shoal):
    server.always = refuse_text("bad")
    done = run_shoal("embed", "good", "bad", "--url", server.url)
    assert (done.exit_code, done.stderr) == (1, "error: text 2 is bad.\n")


@pytest.mark.parametrize("extension", ["jsonl", "parquet"])
def test_keep_going_leaves_out_what_is_refused(server: WireServer, run_shoal, tmp_path: Path, extension: str):
    server.always = refuse_text("poison")
    lines = [{"text": f"good {number}"} for number in range(30)]
    lines[4], lines[5], lines[17] = {"text": "poison"}, {"no": "text"}, {"text": "poison"}
    source, output = tmp_path / "corpus.jsonl", tmp_path / f"v.{extension}"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run_shoal("embed", "-f", source, "-o", output, "--keep-going", "--batch-items", 8, "--url", server.url)
    assert done.exit_code == 1
    for number in (5, 6, 18):
        assert f"left out: line {number} of" in done.stderr
    assert "27 vectors" in done.stderr
    assert "3 lines were left out" in done.stderr
    rows = pyarrow.parquet.read_table(output).to_pylist() if extension == "parquet" else None
    rows = rows or [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["line"] for row in rows] == [number for number in range(1, 31) if number not in (5, 6, 18)]
    for row in rows:
        np.testing.assert_array_equal(np.float32(row["embedding"]), vector_of(f"good {row['line'] - 1}"))


def test_keep_going_does_not_hide_that_the_server_fails(server: WireServer, run_shoal):
    server.always = refuse(shoal.UnknownModel("There is no model x.", param="model", hint="Did you mean y?"))
    done = run_shoal("embed", "a", "b", "--model", "x", "--keep-going", "--url", server.url)
    assert (done.exit_code, done.stderr) == (1, "error: There is no model x.\nhint: Did you mean y?\n")


@pytest.mark.parametrize("output", [[], ["-o", "v.npy"], ["-o", "v.jsonl"], ["-o", "v.parquet"]])
def test_empty_input_is_an_error_and_leaves_no_file(server: WireServer, run_shoal, tmp_path: Path, output: list[str]):
    with contextlib.chdir(tmp_path):
        done = run_shoal("embed", *output, "--url", server.url, input=b"")
    assert done.exit_code == 1
    assert done.stderr == "error: There is no text to embed: the input is empty.\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x", "--output", "v.csv"], "must end in one of .npy, .jsonl, .parquet"),
        (["x", "--output", "no/such/v.npy"], "there is no directory no/such"),
        (["x", "--output", "v.npy", "--keep-going"], "could then not be matched"),
        (["x", "--file", __file__], "not both"),
        (["--file", "/no/such/file"], "does not exist"),
        (["x", "--dimensions", "0"], "x>=1"),
        (["x", "--dtype", "binary"], "'float32', 'float16'"),
    ],
)
def test_wrong_usage(run_shoal, arguments: list[str], words: str):
    done = run_shoal("embed", *arguments)
    assert done.exit_code == 2
    assert words in done.stderr


def test_parquet_without_pyarrow(server: WireServer, run_shoal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = run_shoal("embed", "x", "-o", tmp_path / "v.parquet", "--url", server.url)
    assert done.exit_code == 1
    assert "pip install pyarrow" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_damaged_archive(server: WireServer, run_shoal, tmp_path: Path):
    source = tmp_path / "corpus.txt.gz"
    source.write_bytes(gzip.compress(b"text\n" * 100)[:-9])
    done = run_shoal("embed", "-f", source, "--url", server.url)
    assert done.exit_code == 1
    assert f"error: {source} cannot be unpacked" in done.stderr


def test_an_output_that_cannot_be_written(server: WireServer, run_shoal, tmp_path: Path):
    (tmp_path / "v.npy.part").mkdir()
    done = run_shoal("embed", "x", "-o", tmp_path / "v.npy", "--url", server.url)
    assert done.exit_code == 1
    assert "Is a directory" in done.stderr


def test_ctrl_c_ends_it_at_once(server: WireServer, start, corpus: Path, tmp_path: Path):
    has_arrived = threading.Event()

    async def hang(request, body):
        has_arrived.set()
        await never(request, body)

    server.always = hang
    output = tmp_path / "v.npy"
    process = start("embed", "-f", corpus, "-o", output, "--url", server.url, "--batch-items", 100, "-m", "tiny")
    assert has_arrived.wait(30)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=10)
    assert process.returncode == 130
    assert b"Traceback" not in stderr
    assert not list(tmp_path.glob("v.npy*"))


def test_a_reader_that_leaves_early_is_no_fault(server: WireServer, start, corpus: Path):
    process = start("embed", "-f", corpus, "--url", server.url, "--batch-items", 10)
    assert json.loads(process.stdout.readline())["line"] == 1
    process.stdout.close()
    process.stdout = None
    _, stderr = process.communicate(timeout=30)
    assert stderr == b""
    assert process.returncode == 1


def test_no_texts_from_a_terminal(start):
    ours, theirs = pty.openpty()
    process = start("embed", stdin=theirs)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 2
    assert b"No texts: give some, a --file, or pipe them in." in stderr
    os.close(ours)
    os.close(theirs)


def test_a_bar_on_a_terminal(server: WireServer, start, corpus: Path, tmp_path: Path):
    ours, theirs = pty.openpty()
    process = start("embed", "-f", corpus, "-o", tmp_path / "v.npy", "--url", server.url, stderr=theirs)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the terminal's way of saying that all writers have gone
        while chunk := os.read(ours, 4096):
            seen += chunk
    os.close(ours)
    assert process.wait(30) == 0
    assert b"700 texts" in seen
    assert b"texts/s" in seen


def test_no_server(start):
    process = start("embed", "x", "--url", "http://127.0.0.1:1")
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert stderr.startswith(b"error: No server answers at http://127.0.0.1:1")
    assert b"hint: Start one with `shoal serve`" in stderr
    assert b"Traceback" not in stderr
