"""Cutting, renormalising and quantising: the order, the scales, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from shoal.adapters import open_adapter
from shoal.adapters.base import Adapter, Vectors
from shoal.catalog import resolve
from shoal.errors import InternalError, InvalidRequest
from shoal.types import DType, EmbedOptions
from tiny_models import encode_reference

MATRYOSHKA = (8, 16)


@pytest.fixture(params=[True, False], ids=["normalizes", "plain"])
def is_normalized(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def adapter(is_normalized: bool, tiny_model: Callable[..., Path]) -> Adapter:
    spec = resolve(str(tiny_model("bert", normalize=is_normalized)))
    return open_adapter(msgspec.structs.replace(spec, matryoshka_dimensions=MATRYOSHKA))


@pytest.fixture
def raw(is_normalized: bool) -> npt.NDArray[np.float32]:
    rows = np.random.default_rng(0).normal(size=(9, 32)).astype(np.float32) * 3
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) if is_normalized else rows


def finish(adapter: Adapter, raw: npt.NDArray[Any], **options: Any) -> Vectors:
    return adapter.finish({"dense": raw}, EmbedOptions(**options))[0]


def unit(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_by_default_rows_stay_as_the_model_made_them(adapter: Adapter, raw: npt.NDArray[np.float32]) -> None:
    for options in ({}, {"dimensions": 32}):
        vectors = finish(adapter, raw, **options)
        assert (vectors.dimensions, vectors.scales) == (32, None)
        np.testing.assert_array_equal(vectors.data, raw)


def test_cut_then_renormalise(adapter: Adapter, raw: npt.NDArray[np.float32], is_normalized: bool) -> None:
    for dimensions in (1, 8, 13, 31):
        cut = finish(adapter, raw, dimensions=dimensions)
        assert (cut.dimensions, cut.data.shape) == (dimensions, (9, dimensions))
        expected = raw[:, :dimensions]
        np.testing.assert_allclose(cut.data, unit(expected) if is_normalized else expected, rtol=1e-6)
        np.testing.assert_allclose(
            finish(adapter, raw, dimensions=dimensions, normalize=True).data, unit(expected), rtol=1e-6
        )
        np.testing.assert_array_equal(finish(adapter, raw, dimensions=dimensions, normalize=False).data, expected)
        assert cut.data.flags.c_contiguous


def test_normalize_on_request(adapter: Adapter, raw: npt.NDArray[np.float32]) -> None:
    np.testing.assert_allclose(finish(adapter, raw, normalize=True).data, unit(raw), rtol=1e-6)
    np.testing.assert_array_equal(finish(adapter, raw, normalize=False).data, raw)


def test_cut_is_the_references_cut(tiny_model: Callable[..., Path], reference: Callable[[Path], Any]) -> None:
    directory = tiny_model("bert", normalize=False)
    texts = ["mountains", "joyeux noël", "a longer text about the quick brown fox"]
    model = reference(directory)
    spec = msgspec.structs.replace(resolve(str(directory)), matryoshka_dimensions=MATRYOSHKA)
    theirs = encode_reference(model, texts, truncate_dim=8, normalize_embeddings=True)
    ours = finish(open_adapter(spec), encode_reference(model, texts), dimensions=8, normalize=True)
    np.testing.assert_allclose(ours.data, theirs, atol=1e-6)


@pytest.mark.parametrize("dimensions", [0, -1, 33, 10**9])
def test_lengths_out_of_range_are_refused(dimensions: int, adapter: Adapter) -> None:
    with pytest.raises(InvalidRequest, match=rf"dimensions is {dimensions};.*1 to 32") as refused:
        adapter.check(EmbedOptions(dimensions=dimensions))
    assert refused.value.param == "dimensions"
    for good in (1, 8, 9, 31, 32, None):
        adapter.check(EmbedOptions(dimensions=good))


def test_a_model_without_matryoshka_takes_its_own_length_only(tiny_model: Callable[..., Path]) -> None:
    adapter = open_adapter(resolve(str(tiny_model("bert"))))
    for good in (32, None):
        adapter.check(EmbedOptions(dimensions=good))
    for bad in (0, -1, 8, 31, 33):
        with pytest.raises(InvalidRequest, match=rf"dimensions is {bad};.*gives 32 and was not trained"):
            adapter.check(EmbedOptions(dimensions=bad))


def test_every_dtype_decodes(adapter: Adapter, raw: npt.NDArray[np.float32]) -> None:
    for dimensions in (32, 8, 13):
        exact = finish(adapter, raw, dimensions=dimensions).data
        half = finish(adapter, raw, dimensions=dimensions, dtype="float16")
        assert (half.data.dtype, half.scales) == (np.dtype("<f2"), None)
        np.testing.assert_allclose(half.data.astype(np.float32), exact, rtol=1e-3, atol=1e-6)

        small = finish(adapter, raw, dimensions=dimensions, dtype="int8")
        assert (small.data.dtype, small.dimensions) == (np.dtype("i1"), dimensions)
        assert small.scales is not None
        assert small.scales.dtype == np.float32
        decoded = small.data.astype(np.float32) * small.scales[:, None]
        assert (np.abs(decoded - exact) <= small.scales[:, None] / 2 * 1.001).all()
        assert np.abs(small.data.astype(int)).max(axis=1).tolist() == [127] * 9

        bits = finish(adapter, raw, dimensions=dimensions, dtype="binary")
        assert (bits.data.dtype, bits.data.shape) == (np.dtype("u1"), (9, -(-dimensions // 8)))
        assert bits.scales is not None
        signs = np.unpackbits(bits.data, axis=1, count=dimensions).astype(np.float32) * 2 - 1
        np.testing.assert_array_equal(signs, np.where(exact > 0, 1, -1))
        np.testing.assert_allclose(bits.scales, np.abs(exact).mean(axis=1), rtol=1e-6)


def test_float32_bytes_are_little_endian(adapter: Adapter, raw: npt.NDArray[np.float32]) -> None:
    assert finish(adapter, raw).data.tobytes() == raw.astype("<f4").tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "binary"])
@pytest.mark.parametrize(
    ("value", "what"), [(np.nan, "not finite"), (np.inf, "not finite"), (-np.inf, "not finite"), (0.0, "no length")]
)
def test_an_unsound_row_is_an_error_and_names_the_row(
    value: float, what: str, dtype: DType, adapter: Adapter, raw: npt.NDArray[np.float32]
) -> None:
    rows = raw.copy()
    rows[4] = 0
    rows[4, 3] = value
    with pytest.raises(InternalError, match=f"row 4.*{what}"):
        finish(adapter, rows, dtype=dtype)


def test_tiny_and_huge_rows_are_sound(tiny_model: Callable[..., Path]) -> None:
    adapter = open_adapter(resolve(str(tiny_model("bert", normalize=False))))
    rows = np.full((2, 32), 1e-30, np.float32)
    rows[1] = 1e30
    for dtype in ("float32", "float16", "int8", "binary"):
        assert np.isfinite(finish(adapter, rows, dtype=dtype).data.astype(np.float64)).all()
    np.testing.assert_allclose(np.linalg.norm(finish(adapter, rows, normalize=True).data, axis=1), 1, rtol=1e-5)


def test_no_rows(adapter: Adapter) -> None:
    for dtype in ("float32", "float16", "int8", "binary"):
        assert finish(adapter, np.empty((0, 32), np.float32), dtype=dtype).data.shape[0] == 0
