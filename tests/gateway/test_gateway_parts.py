"""The pure parts: cutting a request into chunks, items found by their delimiters, log lines."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidRequest, TooLarge
from shoal.gateway.chunks import cut, estimated_tokens
from shoal.gateway.items import split_documents, split_items
from shoal.telemetry.logs import configure_logging

TEXTS = st.lists(st.text(st.characters(codec="utf-8")), min_size=1, max_size=20)
ID_LISTS = st.lists(st.lists(st.integers(0, 2**31), min_size=1, max_size=5), min_size=1, max_size=20)


@given(
    sizes=st.lists(st.integers(2, 5000), min_size=1, max_size=60),
    quantum=st.integers(1, 3000),
    max_length=st.integers(1, 600),
    max_bytes=st.integers(100, 8000),
    max_items=st.integers(1, 30),
)
def test_chunks(sizes: list[int], quantum: int, max_length: int, max_bytes: int, max_items: int) -> None:
    """All items once and in order; within every bound unless a lone item is beyond it; none needlessly small."""
    chunks = cut(
        sizes, quantum_tokens=quantum, max_length=max_length, max_chunk_bytes=max_bytes, max_chunk_items=max_items
    )
    assert [index for start, stop, _ in chunks for index in range(start, stop)] == list(range(len(sizes)))
    costs = [estimated_tokens(size, max_length) for size in sizes]

    def fits(start: int, stop: int) -> bool:
        size = sum(sizes[start:stop]) + stop - start
        return sum(costs[start:stop]) <= quantum and size <= max_bytes and stop - start <= max_items

    for start, stop, tokens in chunks:
        assert tokens == sum(costs[start:stop])
        assert stop - start == 1 or fits(start, stop)
        assert stop == len(sizes) or not fits(start, stop + 1)


@given(items=TEXTS | ID_LISTS, indent=st.sampled_from([None, 0, 2]), is_ascii=st.booleans())
def test_items_of_json(items: list[str] | list[list[int]], indent: int | None, is_ascii: bool) -> None:
    raw = msgspec.Raw(json.dumps(items, indent=indent, ensure_ascii=is_ascii).encode())
    split = split_items(raw, "json", max_items=20, max_item_bytes=10**6)
    assert [json.loads(item) for item in split.raw] == items
    assert split.are_tokens == isinstance(items[0], list)
    middle = len(items) // 2
    assert json.loads(split.pack(middle, len(items))) == items[middle:]


@given(items=TEXTS | ID_LISTS)
def test_items_of_messagepack(items: list[str] | list[list[int]]) -> None:
    split = split_items(msgspec.Raw(msgspec.msgpack.encode(items)), "msgpack", max_items=20, max_item_bytes=10**6)
    assert msgspec.msgpack.decode(split.pack(0, len(items))) == items
    assert split.are_tokens == isinstance(items[0], list)


@given(items=st.lists(st.none() | st.text(max_size=3) | st.integers(-2, 2) | st.floats(0, 1), min_size=1, max_size=6))
@pytest.mark.parametrize("item_format", ["json", "msgpack"])
def test_mixtures_name_the_first_misfit(items: list[object], item_format: str) -> None:
    encode = msgspec.json.encode if item_format == "json" else msgspec.msgpack.encode
    kind = str if isinstance(items[0], str) else int
    is_fine = all(type(item) is kind and (kind is str or item >= 0) for item in items)  # type: ignore[operator]
    raw = msgspec.Raw(encode(items))
    if is_fine or (kind is int and item_format == "msgpack" and all(type(item) is int for item in items)):
        split_items(raw, item_format, max_items=9, max_item_bytes=999)  # type: ignore[arg-type]
        return
    with pytest.raises(InvalidRequest, match=r"^input"):
        split_items(raw, item_format, max_items=9, max_item_bytes=999)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b'"",' * 3_000_000 + b'""]',
        b'["a",' + b"null," * 3_000_000 + b"null]",
        b"[" + b"[1]," * 3_000_000 + b"[1]]",
        b"[" + b"1," * 6_000_000 + b"1]",
        b"[" + b'"\\"\\\\",' * 1_500_000 + b'""]',
    ],
)
def test_work_is_bounded_by_the_limits(body: bytes) -> None:
    start = time.process_time()
    with pytest.raises((TooLarge, InvalidRequest)):
        split_items(msgspec.Raw(body), "json", max_items=2048, max_item_bytes=2**20)
    assert time.process_time() - start < 1


@pytest.fixture
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("_logging_as_before")
def test_log_lines() -> None:
    stream = io.StringIO()
    for style in ("text", "json"):
        configure_logging(style, stream=stream)  # type: ignore[arg-type]
        logging.getLogger("shoal.test").info("request", extra={"fields": {"status": 200, "model": "m"}})
    text, line = stream.getvalue().splitlines()
    assert text.endswith("info    shoal.test request status=200 model=m")
    fields = json.loads(line)
    assert (
        fields | {"level": "info", "logger": "shoal.test", "message": "request", "status": 200, "model": "m"} == fields
    )


LIMITS = {"max_items": 100, "max_item_bytes": 10_000}


@given(texts=TEXTS, is_object=st.booleans(), is_json=st.booleans())
def test_documents_are_their_texts(texts: list[str], is_object: bool, is_json: bool) -> None:
    """Whatever else an object holds, and however its text is spelt; a text that reads `"text"` is no field."""
    documents = [{"title": '"text"', "text": text, "n": {"text": 5}} for text in texts] if is_object else texts
    module, body_format = (msgspec.json, "json") if is_json else (msgspec.msgpack, "msgpack")
    raw = msgspec.Raw(module.encode(documents))
    items = split_documents(raw, body_format, **LIMITS)  # type: ignore[arg-type]
    assert [module.decode(item) for item in items.raw] == texts
    assert module.decode(items.pack(0, len(texts))) == texts
    for index, text in enumerate(texts):
        for wanted, other in (("json", msgspec.json), ("msgpack", msgspec.msgpack)):
            assert other.decode(other.encode(items.value(index, wanted))) == text  # type: ignore[arg-type]


@pytest.mark.parametrize("documents", [["x"] * 101, [{"text": "x"}] * 101, [{"text": "x"}] * 5_000])
@pytest.mark.parametrize("module", [msgspec.json, msgspec.msgpack])
def test_too_many_documents(documents: list[object], module: object) -> None:
    body_format = "json" if module is msgspec.json else "msgpack"
    raw = msgspec.Raw(module.encode(documents))  # type: ignore[attr-defined]
    with pytest.raises(TooLarge, match="100"):
        split_documents(raw, body_format, **LIMITS)  # type: ignore[arg-type]


def test_a_document_that_is_too_long_is_named() -> None:
    raw = msgspec.Raw(msgspec.json.encode([{"text": "x"}, {"text": "x" * 10_001}]))
    with pytest.raises(TooLarge) as caught:
        split_documents(raw, "json", **LIMITS)
    assert caught.value.param == "input[1]"
