"""What the text adapter does with texts, prompts, lengths and token ids; each rule against sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
import torch
from sentence_transformers import SentenceTransformer

from shoal.adapters import open_adapter
from shoal.adapters.base import Adapter
from shoal.catalog import resolve
from shoal.catalog.spec import ModelSpec
from shoal.errors import ContextLengthExceeded, InvalidRequest
from shoal.types import EmbedOptions
from tiny_models import ARCHITECTURES, TinyModel, encode_reference

PLAIN = EmbedOptions()
PROMPTS = (("query", "query: "), ("document", "passage: "), ("none", ""))
CLS, SEP = 101, 102


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small only wait for each other's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def demo(demo_directory: Path) -> tuple[ModelSpec, Adapter]:
    spec = resolve(str(demo_directory))
    return spec, open_adapter(spec)


def ids(adapter: Adapter, item: str | list[int], options: EmbedOptions = PLAIN) -> list[int]:
    (prepared,) = adapter.prepare([item], options)
    return prepared.token_ids.tolist()


@torch.no_grad()
def embed(
    adapter: Adapter, reference: SentenceTransformer, texts: list[str], options: EmbedOptions
) -> npt.NDArray[Any]:
    """Shoal's prepare and finish around the reference's own encoder; mean pooling by `pool_from`."""
    features = adapter.collate(adapter.prepare(texts, options))
    rows = []
    for token_ids, start in zip(
        np.split(features.token_ids, np.cumsum(features.lengths)[:-1]), features.pool_from, strict=True
    ):
        states = reference[0].auto_model(torch.tensor(token_ids[None].astype(np.int64))).last_hidden_state[0]
        pooled = {"sentence_embedding": states[int(start) :].mean(dim=0, keepdim=True)}
        for module in list(reference)[2:]:
            pooled = module(pooled)
        rows.append(pooled["sentence_embedding"][0].numpy())
    return np.asarray(adapter.finish({"dense": np.stack(rows)}, options)[0].data)


def assert_close(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> None:
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() < 1e-5


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("include_prompt", [True, False])
def test_prompts_are_the_references(
    include_prompt: bool, architecture: str, tiny_model: Callable[..., Path], reference: Callable[[Path], Any]
) -> None:
    recipe = TinyModel(architecture, include_prompt=include_prompt, prompts=PROMPTS, dense=((24, "Tanh"),))
    directory = tiny_model(recipe)
    adapter, model = open_adapter(resolve(str(directory))), reference(directory)
    texts = ["mountains", "joyeux noël", "word " * 300, "", "s"]
    for name, prompt in PROMPTS:
        named = embed(adapter, model, texts, EmbedOptions(prompt_name=name))
        assert_close(named, encode_reference(model, texts, prompt_name=name))
        assert_close(named, embed(adapter, model, texts, EmbedOptions(prompt=prompt)))
        pasted = embed(adapter, model, [prompt + text for text in texts], PLAIN)
        if include_prompt or not prompt:
            assert_close(named, pasted)
        else:
            assert np.abs(named - pasted).max() > 1e-3


@pytest.mark.parametrize("prompt", ["query: ", "q", "word " * 200, "  ", "ends with [SEP] x", "東京"])
def test_what_pooling_leaves_out_of_a_prompt(
    prompt: str, tiny_model: Callable[..., Path], reference: Callable[[Path], Any]
) -> None:
    directory = tiny_model("bert", include_prompt=False)
    (prepared,) = open_adapter(resolve(str(directory))).prepare(["some text"], EmbedOptions(prompt=prompt))
    assert prepared.pool_from == reference(directory)[0]._get_prompt_length(prompt)
    # A prompt of the model's own is left in: only what is asked for by name or by text counts as one.
    assert open_adapter(resolve(str(directory))).prepare([prompt], PLAIN)[0].pool_from == 0


def test_something_is_always_left_to_pool(tiny_model: Callable[..., Path]) -> None:
    adapter = open_adapter(resolve(str(tiny_model("bert", include_prompt=False))))
    for prompt in ("the quick brown f", "query"):
        for text in ("ox", "", "\u0301"):
            (prepared,) = adapter.prepare([text], EmbedOptions(prompt=prompt))
            assert 0 < prepared.pool_from < prepared.cost


def test_default_prompt(tiny_model: Callable[..., Path], reference: Callable[[Path], Any]) -> None:
    directory = tiny_model(TinyModel(prompts=PROMPTS, default_prompt_name="query"))
    adapter, model = open_adapter(resolve(str(directory))), reference(directory)
    assert_close(embed(adapter, model, ["a fox"], PLAIN), encode_reference(model, ["a fox"]))
    assert ids(adapter, "a fox") == ids(adapter, "a fox", EmbedOptions(prompt_name="query"))
    assert ids(adapter, "a fox", EmbedOptions(prompt="")) == ids(adapter, "a fox", EmbedOptions(prompt_name="none"))
    assert ids(adapter, "a fox", EmbedOptions(prompt="")) != ids(adapter, "a fox")


def test_prompt_errors_name_the_known_ones(tiny_model: Callable[..., Path], demo: tuple[ModelSpec, Adapter]) -> None:
    adapter = open_adapter(resolve(str(tiny_model(TinyModel(prompts=PROMPTS)))))
    with pytest.raises(InvalidRequest, match=r"'title'.*document, none, query") as unknown:
        adapter.check(EmbedOptions(prompt_name="title"))
    assert unknown.value.param == "prompt_name"
    with pytest.raises(InvalidRequest, match="exclude each other"):
        adapter.check(EmbedOptions(prompt_name="query", prompt="x"))
    with pytest.raises(InvalidRequest, match="are: none"):
        demo[1].check(EmbedOptions(prompt_name="query"))
    for good in (PLAIN, EmbedOptions(prompt="x"), EmbedOptions(prompt="")):
        demo[1].check(good)


def test_empty_and_blank_texts_are_special_tokens_only(
    demo: tuple[ModelSpec, Adapter], demo_directory: Path, reference: Callable[[Path], Any]
) -> None:
    texts = ["alpha", "", "  ", "beta"]
    prepared = demo[1].prepare(texts, PLAIN)
    assert [item.token_ids.tolist() for item in prepared[1:3]] == [[CLS, SEP]] * 2
    assert [item.cost for item in prepared] == [3, 2, 2, 3]
    model = reference(demo_directory)
    assert_close(embed(demo[1], model, texts, PLAIN), encode_reference(model, texts))


def test_blanks_are_kept_where_the_tokenizer_keeps_them(tiny_model: Callable[..., Path]) -> None:
    adapter = open_adapter(resolve(str(tiny_model("roberta"))))
    texts = ["cat", " cat", "cat ", "cat\n", "Cat", "def f():\n    return 1"]
    assert len({tuple(ids(adapter, text)) for text in texts}) == len(texts)


def test_literal_special_tokens_are_special_tokens_alone_and_in_company(demo: tuple[ModelSpec, Adapter]) -> None:
    alone = ids(demo[1], "a [SEP] b [PAD] c")
    assert alone.count(SEP) == 2
    assert 0 in alone
    company = demo[1].prepare(["x", "a [SEP] b [PAD] c", "y " * 400], PLAIN)
    assert company[1].token_ids.tolist() == alone


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_truncation_table(architecture: str, tiny_model: Callable[..., Path]) -> None:
    spec = resolve(str(tiny_model(architecture)))
    text = " ".join(f"word{number}" for number in range(200))
    whole = ids(open_adapter(with_length(spec, 10**6)), text)
    for default in (True, False):
        adapter = open_adapter(spec, truncates=default)
        for overflow in ("truncate", None) if default else ("truncate",):
            for side in ("right", "left", None):
                options = EmbedOptions(overflow=overflow, truncation_side=side)
                kept = whole[:127] + whole[-1:] if side != "left" else whole[:1] + whole[-127:]
                fits, cut = adapter.prepare(["fits", text], options)
                assert (fits.was_truncated, cut.was_truncated, cut.cost) == (False, True, 128)
                assert cut.token_ids.tolist() == kept
        for overflow in ("error",) if default else ("error", None):
            with pytest.raises(ContextLengthExceeded, match=rf"input\[6\] has {len(whole)} tokens.*takes 128") as long:
                adapter.prepare(["fits", text], EmbedOptions(overflow=overflow), first_item=5)
            assert long.value.param == "input[6]"


def with_length(spec: ModelSpec, max_length: int) -> ModelSpec:
    longer = msgspec.structs.replace(spec.tokenization, max_length=max_length)
    return msgspec.structs.replace(spec, tokenization=longer)


def test_the_last_token_that_fits_is_not_cut(demo: tuple[ModelSpec, Adapter]) -> None:
    exact = demo[1].prepare(["cat " * 254], EmbedOptions(overflow="error"))[0]
    assert (exact.cost, exact.was_truncated) == (256, False)
    with pytest.raises(ContextLengthExceeded, match="257 tokens"):
        demo[1].prepare(["cat " * 255], EmbedOptions(overflow="error"))


def test_token_ids_get_the_special_tokens(demo: tuple[ModelSpec, Adapter]) -> None:
    text = "The quick brown fox"
    inner = ids(demo[1], text)[1:-1]
    mixed = demo[1].prepare([inner, text, [2009], inner * 100], PLAIN)
    assert mixed[0].token_ids.tolist() == mixed[1].token_ids.tolist()
    assert mixed[2].token_ids.tolist() == [CLS, 2009, SEP]
    assert (mixed[3].cost, mixed[3].was_truncated) == (256, True)
    with pytest.raises(ContextLengthExceeded):
        demo[1].prepare([inner * 100], EmbedOptions(overflow="error"))


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ([100257], "100257.*0 to 30521"),
        ([5, -1], "-1.*0 to 30521"),
        ([30522], "30522"),
        ([], "empty list"),
        ([1.5], "list of token ids"),
        ([True], "list of token ids"),
        (["a"], "list of token ids"),
        (5, "string or a list"),
        (None, "string or a list"),
        ({"text": "a"}, "string or a list"),
        ("half a \ud83d pair", r"U\+D83D, at character 7"),
    ],
)
def test_one_bad_item_is_named_in_the_requests_own_numbering(
    item: Any, named: str, demo: tuple[ModelSpec, Adapter]
) -> None:
    with pytest.raises(InvalidRequest, match=named) as refused:
        demo[1].prepare(["fine", item, "fine as well"], PLAIN, first_item=40)
    assert refused.value.param == "input[41]"
    assert len(demo[1].prepare(["fine"], PLAIN)) == 1


def test_prompts_and_token_ids_do_not_mix(demo: tuple[ModelSpec, Adapter]) -> None:
    with pytest.raises(InvalidRequest, match="prompt cannot be put in front") as refused:
        demo[1].prepare([[5, 6]], EmbedOptions(prompt="query: "))
    assert refused.value.param == "input[0]"
    with pytest.raises(InvalidRequest, match=r"prompt .* is not valid Unicode"):
        demo[1].prepare(["a"], EmbedOptions(prompt="\ud83d"))


def test_cost_counts_what_really_runs(demo: tuple[ModelSpec, Adapter]) -> None:
    texts = ["The quick brown fox jumps over the lazy dog.", "北京是中国的首都", "word " * 700]
    assert [item.cost for item in demo[1].prepare(texts, PLAIN)] == [12, 10, 256]


def test_collate_is_ragged(demo: tuple[ModelSpec, Adapter]) -> None:
    prepared = demo[1].prepare(["one", "one two three"], PLAIN)
    features = demo[1].collate(prepared)
    assert features.lengths.tolist() == [3, 5]
    assert features.token_ids.dtype == features.lengths.dtype == features.pool_from.dtype == np.int32
    assert features.token_ids.tolist() == [*prepared[0].token_ids, *prepared[1].token_ids]
    assert (features.num_items, features.num_tokens, features.token_type_ids) == (2, 8, None)
