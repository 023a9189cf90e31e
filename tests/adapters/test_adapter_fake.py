"""The fake family goes through the same adapter, with ids made of the text's bytes."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.adapters import open_adapter
from shoal.catalog import fake_spec
from shoal.errors import ContextLengthExceeded, InvalidRequest
from shoal.runtimes.base import RuntimeOptions
from shoal.runtimes.fake import FAULT_IDS, FIRST_ORDINARY_ID, FakeRuntime
from shoal.types import EmbedOptions
from tiny_models import NASTY_TEXTS

PLAIN = EmbedOptions()


def test_different_texts_have_different_ids() -> None:
    adapter = open_adapter(fake_spec("fake", max_length=10**6))
    texts = [*NASTY_TEXTS, *(f"sentence number {number}" for number in range(2000)), "ab", "ba", "abcdabcd", "abcd"]
    prepared = adapter.prepare(list(dict.fromkeys(texts)), PLAIN)
    assert len({item.token_ids.tobytes() for item in prepared}) == len(prepared)
    assert all(item.token_ids.min() >= FIRST_ORDINARY_ID for item in prepared)
    for text, item in zip(dict.fromkeys(texts), prepared, strict=True):
        assert item.cost == max(1, -(-len(text.encode()) // 4))


def test_order_matters() -> None:
    adapter = open_adapter(fake_spec("fake"))
    one, other = adapter.prepare(["abcdefgh", "efghabcd"], PLAIN)
    assert sorted(one.token_ids) != sorted(other.token_ids)


def test_same_rules_as_a_real_model() -> None:
    adapter = open_adapter(fake_spec("fake", max_length=5))
    (cut,) = adapter.prepare(["x" * 100], PLAIN)
    assert (cut.cost, cut.was_truncated) == (5, True)
    with pytest.raises(ContextLengthExceeded, match=r"has 25 tokens.*takes 5"):
        adapter.prepare(["x" * 100], EmbedOptions(overflow="error"))
    with pytest.raises(InvalidRequest, match="not valid Unicode"):
        adapter.prepare(["\udc80"], PLAIN)
    with pytest.raises(InvalidRequest, match="prompt_name"):
        adapter.check(EmbedOptions(prompt_name="query"))
    (own,) = adapter.prepare([[11, 12]], PLAIN)
    assert own.token_ids.tolist() == [11, 12]


@pytest.mark.parametrize("fault", FAULT_IDS)
def test_texts_ask_for_faults(fault: str) -> None:
    adapter = open_adapter(fake_spec("fake"))
    fine, faulty = adapter.prepare(["all fine", f"fault:{fault} number 7"], PLAIN)
    assert FAULT_IDS[fault] == faulty.token_ids[0]
    assert not set(FAULT_IDS.values()) & set(fine.token_ids.tolist())


def test_through_the_fake_runtime() -> None:
    spec = fake_spec("fake", dimensions=16)
    adapter = open_adapter(spec)
    session = FakeRuntime().load(spec, RuntimeOptions())
    texts = ["one", "two", "three"]
    (together,) = adapter.finish(session.run(adapter.collate(adapter.prepare(texts, PLAIN))), PLAIN)
    alone = [
        adapter.finish(session.run(adapter.collate(adapter.prepare([text], PLAIN))), PLAIN)[0].data[0] for text in texts
    ]
    np.testing.assert_array_equal(together.data, np.stack(alone))
    np.testing.assert_allclose(np.linalg.norm(together.data.astype(np.float64), axis=1), 1, rtol=1e-5)
