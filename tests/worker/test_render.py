"""Rendered bytes read back as the vectors that went in, in every encoding."""

import base64
import json

import msgspec
import numpy as np
import pytest

from shoal.adapters.base import Labels, MultiVectors, Scores, SparseVectors, Vectors
from shoal.types import Render
from shoal.worker.render import render

FLOATS = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
OPENAI = {"before": b'{"object":"embedding","index":', "between": b',"embedding":', "after": b"}", "has_index": True}


def test_json_reads_back_as_the_same_float32_with_indices_of_the_request() -> None:
    body = render(Vectors(FLOATS, 7), Render("json", **OPENAI), first_item=40).body
    items = json.loads(b"[" + body + b"]")
    assert [item["index"] for item in items] == [40, 41, 42, 43, 44]
    np.testing.assert_array_equal(np.array([item["embedding"] for item in items], np.float32), FLOATS)


def test_base64_is_little_endian_bytes_of_each_row() -> None:
    body = render(Vectors(FLOATS, 7), Render("base64", **OPENAI), first_item=0).body
    rows = [base64.b64decode(item["embedding"]) for item in json.loads(b"[" + body + b"]")]
    np.testing.assert_array_equal(np.array([np.frombuffer(row, "<f4") for row in rows]), FLOATS)


@pytest.mark.parametrize("data", [FLOATS, FLOATS.astype(np.float16), np.arange(10, dtype=np.int8).reshape(5, 2)])
def test_raw_is_the_matrix_and_json_its_numbers(data: np.ndarray) -> None:
    assert render(Vectors(data, 7), Render("raw", b"ignored"), first_item=3).body == data.tobytes()
    rows = json.loads(b"[" + render(Vectors(data, 7), Render("json"), first_item=0).body + b"]")
    np.testing.assert_array_equal(np.array(rows, data.dtype), data)


def test_rows_that_are_a_view_are_rendered_as_they_look() -> None:
    rows = json.loads(b"[" + render(Vectors(FLOATS[::2, :3], 3), Render(before=b'{"v":', after=b"}"), 0).body + b"]")
    np.testing.assert_array_equal(np.array([row["v"] for row in rows], np.float32), FLOATS[::2, :3])


def test_a_lone_vector_of_one_number_is_an_item_like_any_other() -> None:
    assert render(Vectors(np.array([[0.5]], np.float32), 1), Render(), 0).body == b"[0.5]"


SPARSE = SparseVectors(
    np.array([2, 0, 3], np.int32), np.array([3, 70_000, 0, 1, 2], np.int32), np.array([0.1, 2, 3e-7, 4, 5], np.float32)
)


def test_sparse_vectors_in_columns_in_entries_and_raw() -> None:
    """A vector without an entry is an item like any other."""
    expected = [
        [(3, np.float32(0.1)), (70_000, np.float32(2))],
        [],
        [(0, np.float32(3e-7)), (1, np.float32(4)), (2, np.float32(5))],
    ]
    columns = json.loads(b"[" + render(SPARSE, Render("json"), 0).body + b"]")
    assert [list(zip(row["indices"], np.array(row["values"], np.float32), strict=True)) for row in columns] == expected
    entries = json.loads(b"[" + render(SPARSE, Render("entries"), 0).body + b"]")
    assert [[(entry["index"], np.float32(entry["value"])) for entry in row] for row in entries] == expected
    raw = render(SPARSE, Render("raw"), 0)
    assert raw.body == SPARSE.indices.tobytes() + SPARSE.values.tobytes()
    assert raw.lengths == [2, 0, 3]


TEXTS = MultiVectors(np.array([2, 0, 3], np.int32), Vectors(FLOATS, 7))


def test_vectors_of_tokens_are_a_list_a_text_or_bytes_with_a_shape() -> None:
    """C34: a text without a vector is an item like any other."""
    lists = json.loads(b"[" + render(TEXTS, Render("json"), 0).body + b"]")
    assert [len(rows) for rows in lists] == [2, 0, 3]
    np.testing.assert_array_equal(np.array([*lists[0], *lists[2]], np.float32), FLOATS)
    packed = json.loads(b"[" + render(TEXTS, Render("base64"), 0).body + b"]")
    assert [text["shape"] for text in packed] == [[2, 7], [0, 7], [3, 7]]
    data = b"".join(base64.b64decode(text["data"]) for text in packed)
    np.testing.assert_array_equal(np.frombuffer(data, "<f4").reshape(5, 7), FLOATS)
    raw = render(TEXTS, Render("raw"), 0)
    assert (raw.body, raw.lengths, raw.dimensions) == (FLOATS.tobytes(), [2, 0, 3], 7)


def test_no_vector_of_any_token_at_all() -> None:
    empty = MultiVectors(np.zeros(2, np.int32), Vectors(np.empty((0, 7), np.float32), 7))
    assert json.loads(b"[" + render(empty, Render("json"), 0).body + b"]") == [[], []]
    assert render(empty, Render("raw"), 0).body == b""


def test_scores_are_raw_float32_and_labels_objects_in_either_format() -> None:
    assert render(Scores(FLOATS[0]), Render("raw"), 0).body == FLOATS[0].tobytes()
    labels = Labels([[("good", 0.75), ("bad", 0.25)], []])
    expected = [[{"label": "good", "score": 0.75}, {"label": "bad", "score": 0.25}], []]
    assert json.loads(b"[" + render(labels, Render("json"), 0).body + b"]") == expected
    assert msgspec.msgpack.decode(b"\x92" + render(labels, Render("msgpack"), 0).body) == expected
