"""Frames survive any way in which a socket may cut them up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.runtimes.wire import FrameReader, Ran, Unload, arrays_of, decode_order, decode_report, pack, unpack

ARRAYS = {
    "ids": np.arange(7, dtype=np.int32),
    "dense": np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32),
    "none": np.empty((0, 4), np.float32),
    "half": np.ones((2, 1, 3), np.float16),
}


def feed(reader: FrameReader, data: bytes) -> list[memoryview]:
    """What a socket with little in it does: fills the buffer as far as it goes."""
    frames = []
    while data:
        buffer = reader.buffer
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        data = data[count:]
        frames += reader.received(count)
    return frames


@given(cuts=st.lists(st.integers(1, 400), max_size=30))
def test_frames_come_out_as_they_went_in_however_they_are_cut(cuts: list[int]) -> None:
    stream = b"".join([pack(Ran(7, 0.5), ARRAYS), pack(Unload(8, "s")), pack(Ran(9, 0.25), {"x": np.arange(3)})])
    reader, frames, start = FrameReader(), [], 0
    for cut in [*cuts, len(stream)]:
        frames += feed(reader, stream[start : start + cut])
        start += cut
    assert len(frames) == 3
    header, body = unpack(frames[0])
    ran = decode_report(header)
    arrays = arrays_of(ran.arrays, body)
    assert (ran.id, ran.seconds) == (7, 0.5)
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)
    assert decode_order(unpack(frames[1])[0]) == Unload(8, "s")
    assert decode_report(unpack(frames[2])[0]).id == 9


def test_a_frame_larger_than_the_buffer_is_received_into_one_buffer_without_copies() -> None:
    large = np.arange(500_000, dtype=np.float32)
    (frame,) = feed(FrameReader(), pack(Ran(1, 0.0), {"dense": large}))
    header, body = unpack(frame)
    received = arrays_of(decode_report(header).arrays, body)["dense"]
    np.testing.assert_array_equal(received, large)
    assert np.shares_memory(received, np.frombuffer(frame, np.uint8))
    assert received.ctypes.data % 16 == 0


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_in_any_memory_order_arrive_right(order: str) -> None:
    array = np.array(np.arange(12).reshape(3, 4), order=order)
    (frame,) = feed(FrameReader(), pack(Ran(1, 0.0), {"x": array, "strided": array[::2]}))
    header, body = unpack(frame)
    arrays = arrays_of(decode_report(header).arrays, body)
    np.testing.assert_array_equal(arrays["x"], array)
    np.testing.assert_array_equal(arrays["strided"], array[::2])
