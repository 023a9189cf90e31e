"""The tokenizer classes that transformers knows: what each builds anew from tokenizer_config.json. One row a class.

Knows the files' contents, not the files, and not the tokenizers library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from shoal.catalog.files import refusal

__all__ = ["CLASSES", "TokenizerClass"]

_TOKENIZER = "tokenizer.json"

Json = dict[str, Any]


class TokenizerClass(msgspec.Struct, frozen=True):
    """How transformers builds one tokenizer class.

    Attributes:
        model: what tokenizer.json's model must be; keys that the class would not take from the file included.
        named: default special tokens.
        swallows_blank: those that take the blank before them along.
        keeps_added_tokens: tokenizer.json's added tokens stay although tokenizer_config.json lists others.
        build: (tokenizer_config, tokenizer.json, special tokens, id of a token) -> sections of tokenizer.json.
    """

    model: Json
    named: dict[str, str]
    build: Callable[[Json, Json, dict[str, str], Callable[[str], int]], Json]
    swallows_blank: tuple[str, ...] = ()
    keeps_added_tokens: bool = False


def _bert(settings: Json, document: Json, named: dict[str, str], token_id: Callable[[str], int]) -> Json:
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": bool(settings.get("tokenize_chinese_chars", True)),
            "strip_accents": settings.get("strip_accents"),
            "lowercase": bool(settings.get("do_lower_case", True)),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _template(named["cls_token"], named["sep_token"], token_id, has_types=True),
    }


def _mpnet(settings: Json, document: Json, named: dict[str, str], token_id: Callable[[str], int]) -> Json:
    return {
        **_bert(settings, document, named, token_id),
        "post_processor": _roberta_processing(named, token_id, add_prefix_space=False),
    }


def _roberta(settings: Json, document: Json, named: dict[str, str], token_id: Callable[[str], int]) -> Json:
    add_prefix_space = bool(settings.get("add_prefix_space", False))
    return {
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": add_prefix_space,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": _roberta_processing(named, token_id, add_prefix_space=add_prefix_space),
    }


def _xlm_roberta(settings: Json, document: Json, named: dict[str, str], token_id: Callable[[str], int]) -> Json:
    scheme = "always" if settings.get("add_prefix_space", True) else "never"
    return {
        **_sentence_pieces(document, scheme),
        "post_processor": _template(named["bos_token"], named["eos_token"], token_id, closes_twice=True),
    }


def _t5(settings: Json, document: Json, named: dict[str, str], token_id: Callable[[str], int]) -> Json:
    return {**_sentence_pieces(document, "always"), "post_processor": _template(None, "</s>", token_id)}


def _sentence_pieces(document: Json, scheme: str) -> Json:
    """The file's own table of characters, then words that start with a mark."""
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    normalizer = document.get("normalizer") or {}
    candidates = normalizer["normalizers"] if normalizer.get("type") == "Sequence" else [normalizer]
    return {
        "normalizer": next((step for step in candidates if step.get("type") == "Precompiled"), None),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
    }


def _qwen2(settings: Json, document: Json, named: dict[str, str], token_id: Callable[[str], int]) -> Json:
    byte_level = {"add_prefix_space": bool(settings.get("add_prefix_space")), "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": _QWEN_WORDS}, "behavior": "Isolated", "invert": False}
    return {
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, {"type": "ByteLevel", **byte_level}]},
    }


def _llama(settings: Json, document: Json, named: dict[str, str], token_id: Callable[[str], int]) -> Json:
    # The class has no unknown token: what no piece covers falls back to its bytes, which must be there.
    for byte in range(256):
        token_id(f"<0x{byte:02X}>")
    adds_blank = settings.get("add_prefix_space")
    scheme = "always" if settings.get("legacy") else "first"
    metaspace = {"type": "Metaspace", "replacement": "▁", "split": False}
    return {
        "normalizer": None,
        "pre_tokenizer": {**metaspace, "prepend_scheme": scheme if adds_blank is not False else "never"},
    }


def _gemma(settings: Json, document: Json, named: dict[str, str], token_id: Callable[[str], int]) -> Json:
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    return {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": split,
    }


def _deberta(settings: Json, document: Json, named: dict[str, str], token_id: Callable[[str], int]) -> Json:
    model, unknown = document["model"], [named["unk_token"], 0.0]
    unknown_id = model["vocab"].index(unknown) if unknown in model["vocab"] else settings.get("unk_id", 1)
    if model.get("unk_id") != unknown_id:
        raise refusal(_TOKENIZER, "model.unk_id", f"is {model.get('unk_id')!r}, but transformers takes {unknown_id}.")
    lower = [{"type": "Lowercase"}] if settings.get("do_lower_case") else []
    blanks = {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "}
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    punctuation = [{"type": "Punctuation", "behavior": "Isolated"}] if settings.get("split_by_punct") else []
    scheme = "always" if settings.get("add_prefix_space", True) else "first"
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*lower, blanks, {"type": "NFC"}, strip]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*punctuation, metaspace]},
        "post_processor": _template(named["cls_token"], named["sep_token"], token_id, has_types=True),
    }


def _template(
    first: str | None, last: str, token_id: Callable[[str], int], *, has_types: bool = False, closes_twice: bool = False
) -> Json:
    """Special tokens around a text, and around two, which BERT tells apart by token types and XLM-R by one more."""
    text = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": int(has_types)}}
    opening = [{"SpecialToken": {"id": first, "type_id": 0}}] if first is not None else []
    closing = {"SpecialToken": {"id": last, "type_id": 0}}
    end = {"SpecialToken": {"id": last, "type_id": int(has_types)}}
    return {
        "type": "TemplateProcessing",
        "single": [*opening, text, closing],
        "pair": [*opening, text, closing, *([closing] if closes_twice else []), second, end],
        "special_tokens": {
            token: {"id": token, "ids": [token_id(token)], "tokens": [token]}
            for token in (first, last)
            if token is not None
        },
    }


def _roberta_processing(named: dict[str, str], token_id: Callable[[str], int], *, add_prefix_space: bool) -> Json:
    return {
        "type": "RobertaProcessing",
        "sep": [named["sep_token"], token_id(named["sep_token"])],
        "cls": [named["cls_token"], token_id(named["cls_token"])],
        "trim_offsets": True,
        "add_prefix_space": add_prefix_space,
    }


_BERT_NAMES = {
    key: f"[{key[:-6].upper()}]" for key in ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
}
_ROBERTA_NAMES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
_WORD_PIECE = {"type": "WordPiece", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}

_QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BYTE_BPE = {"type": "BPE", "dropout": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
_FALLBACK_BPE = {"type": "BPE", "dropout": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False}

_AS_IT_IS = TokenizerClass({}, {}, lambda settings, document, named, token_id: {}, keeps_added_tokens=True)

CLASSES: dict[str, TokenizerClass] = {
    "PreTrainedTokenizer": _AS_IT_IS,
    "TokenizersBackend": _AS_IT_IS,
    # transformers 5 has no such class left.
    "ElectraTokenizer": _AS_IT_IS,
    "BertTokenizer": TokenizerClass(_WORD_PIECE, _BERT_NAMES, _bert),
    "DistilBertTokenizer": TokenizerClass(_WORD_PIECE, _BERT_NAMES, _bert),
    "MPNetTokenizer": TokenizerClass(
        _WORD_PIECE, {**_ROBERTA_NAMES, "unk_token": "[UNK]"}, _mpnet, swallows_blank=("mask_token",)
    ),
    "RobertaTokenizer": TokenizerClass(
        {"type": "BPE", "dropout": None, "fuse_unk": False, "byte_fallback": False}, _ROBERTA_NAMES, _roberta
    ),
    "XLMRobertaTokenizer": TokenizerClass(
        {"type": "Unigram", "unk_id": 3, "byte_fallback": False}, _ROBERTA_NAMES, _xlm_roberta
    ),
    "Qwen2Tokenizer": TokenizerClass(
        _BYTE_BPE, dict.fromkeys(("unk_token", "eos_token", "pad_token"), "<|endoftext|>"), _qwen2
    ),
    "LlamaTokenizer": TokenizerClass(
        _FALLBACK_BPE, {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}, _llama
    ),
    "T5Tokenizer": TokenizerClass(
        {"type": "Unigram", "unk_id": 2, "byte_fallback": False},
        {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
        | {text: text for text in (f"<extra_id_{i}>" for i in range(100))},
        _t5,
    ),
    "DebertaV2Tokenizer": TokenizerClass(
        {"type": "Unigram", "byte_fallback": False},
        {**_BERT_NAMES, "bos_token": "[CLS]", "eos_token": "[SEP]"},
        _deberta,
    ),
    "GemmaTokenizer": TokenizerClass(
        {**_FALLBACK_BPE, "unk_token": "<unk>"},
        {f"{name}_token": f"<{name}>" for name in ("unk", "bos", "eos", "pad", "mask")},
        _gemma,
    ),
}
