"""Rendered bytes read back as the vectors that went in, in every encoding."""

import base64
import json

import numpy as np
import pytest

from shoal.adapters.base import SparseVectors, Vectors
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


def test_sparse_pairs_are_the_lists_entry_by_entry_and_may_be_none() -> None:
    sparse = SparseVectors(np.array([2, 0, 1], np.int32), np.array([3, 7, 5], np.int32), FLOATS[0, :3])
    rows = json.loads(b"[" + render(sparse, Render("pairs"), 0).body + b"]")
    assert [[entry["index"] for entry in row] for row in rows] == [[3, 7], [], [5]]
    values = [entry["value"] for row in rows for entry in row]
    np.testing.assert_array_equal(np.array(values, np.float32), FLOATS[0, :3])
