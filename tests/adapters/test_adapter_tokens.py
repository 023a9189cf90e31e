"""Token ids are those of the reference tokenizer, for every family, every setting that changes them, nasty texts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from shoal.adapters import open_adapter
from shoal.adapters.base import Adapter
from shoal.catalog import resolve
from shoal.errors import ModelRefused
from shoal.types import EmbedOptions
from tiny_models import ARCHITECTURES, NASTY_TEXTS, load_reference, quiet

PLAIN = EmbedOptions()


def ids_of(adapter: Adapter, texts: list[str], options: EmbedOptions = PLAIN) -> list[list[int]]:
    return [item.token_ids.tolist() for item in adapter.prepare(texts, options)]


def assert_same_tokens(directory: Path, texts: list[str] = NASTY_TEXTS) -> None:
    """Shoal, AutoTokenizer and sentence-transformers read the same ids from the same files."""
    spec = resolve(str(directory))
    ours = ids_of(open_adapter(spec), texts)
    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(directory)
        reference = load_reference(directory)
        theirs = [tokenizer(t, truncation=True, max_length=spec.tokenization.max_length)["input_ids"] for t in texts]
        embedded = [reference.preprocess([text])["input_ids"][0].tolist() for text in texts]
    for text, our, their, at_inference in zip(texts, ours, theirs, embedded, strict=True):
        assert our == at_inference, repr(text[:80])
        # do_lower_case is sentence-transformers' own doing.
        assert our == their or spec.tokenization.lower, repr(text[:80])


@pytest.fixture
def edited(tiny_model: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """A copy of a tiny model with keys of one JSON file changed; `...` removes one."""

    def make(architecture: str, file: str, **changes: Any) -> Path:
        target = tmp_path / "edited"
        shutil.copytree(tiny_model(architecture), target)
        content = json.loads((target / file).read_text())
        content = {key: value for key, value in {**content, **changes}.items() if value is not ...}
        (target / file).write_text(json.dumps(content))
        return target

    return make


def test_demo_model(demo_directory: Path) -> None:
    # Its tokenizer.json asks for 128 tokens and padding; its sentence_bert_config.json says 256, and that counts.
    assert_same_tokens(demo_directory)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_architecture(architecture: str, tiny_model: Callable[..., Path]) -> None:
    assert_same_tokens(tiny_model(architecture))


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("bert", {"do_lower_case": False}),
        ("bert", {"do_lower_case": False, "strip_accents": True}),
        ("bert", {"strip_accents": False}),
        ("bert", {"tokenize_chinese_chars": False}),
        ("bert", {"do_lower_case": ..., "strip_accents": ..., "tokenize_chinese_chars": ...}),
        ("bert", {"tokenizer_class": ...}),
        ("bert", {"tokenizer_class": "BertTokenizerFast"}),
        ("bert", {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False}),
        ("bert", {"truncation_side": "left"}),
        ("bert", {"additional_special_tokens": ["the", "##ing"]}),
        ("distilbert", {"tokenizer_class": "BertTokenizer", "do_lower_case": False}),
        ("distilbert", {"tokenizer_class": ...}),
        ("mpnet", {"do_lower_case": False}),
        ("mpnet", {"tokenizer_class": ...}),
        ("roberta", {"add_prefix_space": True}),
        ("roberta", {"tokenizer_class": ...}),
        ("xlm-roberta", {"add_prefix_space": False}),
        ("xlm-roberta", {"tokenizer_class": "XLMRobertaTokenizerFast"}),
    ],
)
def test_tokenizer_config_goes_before_tokenizer_json(
    architecture: str, changes: dict[str, Any], edited: Callable[..., Path]
) -> None:
    assert_same_tokens(edited(architecture, "tokenizer_config.json", **changes))


def test_settings_that_matter_do_change_tokens(edited: Callable[..., Path], tiny_model: Callable[..., Path]) -> None:
    """Guards the test above: with no effect at all it would pass as well."""
    plain = ids_of(open_adapter(resolve(str(tiny_model("bert")))), NASTY_TEXTS)
    cased = edited("bert", "tokenizer_config.json", do_lower_case=False)
    assert ids_of(open_adapter(resolve(str(cased))), NASTY_TEXTS) != plain


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlm-roberta"])
def test_lower_case_of_sentence_transformers(architecture: str, edited: Callable[..., Path]) -> None:
    directory = edited(architecture, "sentence_bert_config.json", do_lower_case=True)
    if architecture == "bert":
        content = json.loads((directory / "tokenizer_config.json").read_text())
        (directory / "tokenizer_config.json").write_text(json.dumps({**content, "do_lower_case": False}))
    assert resolve(str(directory)).tokenization.lower
    assert_same_tokens(directory)


@pytest.mark.parametrize(
    "changes",
    [
        {"truncation": {"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 0}},
        {"truncation": {"direction": "Left", "max_length": 16, "strategy": "LongestFirst", "stride": 0}},
        {
            "padding": {
                "strategy": {"Fixed": 64},
                "direction": "Right",
                "pad_to_multiple_of": None,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "[PAD]",
            }
        },
        {"normalizer": None},
        {"post_processor": None},
        {"pre_tokenizer": {"type": "WhitespaceSplit"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_tokenizer_json_says_besides_the_vocabulary(changes: dict[str, Any], edited: Callable[..., Path]) -> None:
    directory = edited("bert", "tokenizer.json", **changes)
    spec = resolve(str(directory))
    tokenizer = AutoTokenizer.from_pretrained(directory)
    for text, ours in zip(NASTY_TEXTS, ids_of(open_adapter(spec), NASTY_TEXTS), strict=True):
        # Asked without padding, which is done elsewhere.
        theirs = tokenizer(text, truncation=True, max_length=spec.tokenization.max_length, padding=False)["input_ids"]
        assert ours == theirs, repr(text[:80])


@pytest.mark.parametrize("class_name", ["BertTokenizer", "PreTrainedTokenizerFast"])
def test_added_tokens_of_tokenizer_config(class_name: str, edited: Callable[..., Path]) -> None:
    directory = edited("bert", "tokenizer_config.json", tokenizer_class=class_name)
    vocabulary = json.loads((directory / "tokenizer.json").read_text())["model"]["vocab"]
    flags = {"single_word": False, "lstrip": False, "rstrip": True, "normalized": False, "special": True}
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the"]
    decoder = {str(vocabulary[token]): {"content": token, **flags} for token in tokens}
    content = json.loads((directory / "tokenizer_config.json").read_text())
    (directory / "tokenizer_config.json").write_text(json.dumps({**content, "added_tokens_decoder": decoder}))
    assert_same_tokens(directory, [*NASTY_TEXTS, "other the  [SEP]   THE the", "lather [MASK]  x"])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_added_tokens_at_all(architecture: str, edited: Callable[..., Path]) -> None:
    assert_same_tokens(edited(architecture, "tokenizer.json", added_tokens=[]))


def test_a_tokenizer_taken_as_it_is(edited: Callable[..., Path]) -> None:
    directory = edited("roberta", "tokenizer_config.json")
    with quiet():
        tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
        tokenizer.save_pretrained(directory)
    assert_same_tokens(directory)


def test_special_tokens_without_ids_are_refused(edited: Callable[..., Path]) -> None:
    with pytest.raises(ModelRefused, match=r"tokenizer\.json.*'\[START\]'"):
        resolve(str(edited("bert", "tokenizer_config.json", cls_token="[START]")))


def test_ids_beyond_the_embedding_table_are_refused(edited: Callable[..., Path]) -> None:
    token = {"id": 700, "content": "<new>", "special": False, "normalized": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    with pytest.raises(ModelRefused, match="'<new>' has id 700, but the embedding table has 700 rows"):
        resolve(str(edited("bert", "tokenizer.json", added_tokens=[{**token, **flags}])))


def test_a_tokenizer_that_the_library_rejects_is_refused(edited: Callable[..., Path]) -> None:
    directory = edited("bert", "tokenizer_config.json", tokenizer_class="TokenizersBackend")
    content = json.loads((directory / "tokenizer.json").read_text())
    (directory / "tokenizer.json").write_text(json.dumps({**content, "pre_tokenizer": {"type": "Unheard"}}))
    with pytest.raises(ModelRefused, match=r"tokenizer\.json"):
        open_adapter(resolve(str(directory)))


def test_threads_do_not_disturb_each_other(demo_directory: Path) -> None:
    adapter = open_adapter(resolve(str(demo_directory)))
    left, right = EmbedOptions(truncation_side="left"), EmbedOptions(truncation_side="right")
    expected = {id(options): ids_of(adapter, NASTY_TEXTS, options) for options in (left, right)}
    assert expected[id(left)] != expected[id(right)]
    with ThreadPoolExecutor(4) as pool:
        work = [(options, pool.submit(ids_of, adapter, NASTY_TEXTS, options)) for options in (left, right) * 8]
    for options, done in work:
        assert done.result() == expected[id(options)]
