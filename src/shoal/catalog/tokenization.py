"""tokenizer.json and tokenizer_config.json to `Tokenization`: what transformers' AutoTokenizer would make of them.

transformers 5 takes only the vocabulary from tokenizer.json for the tokenizer classes it knows, and builds normaliser,
pre-tokenizer, post-processor and added tokens anew from tokenizer_config.json. So do the rows of `_CLASSES`; what they
build stands in `Tokenization.parts`. Knows the files, not the tokenizers library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shoal.catalog.files import ModelFiles, refusal
from shoal.catalog.spec import Tokenization

__all__ = ["read_tokenization"]

_CONFIG = "tokenizer_config.json"
_TOKENIZER = "tokenizer.json"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_MIN_LENGTH = 3
"""Two special tokens and one of the text's own."""
_ST_FILES = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)

Json = dict[str, Any]


class _TokenizerClass(msgspec.Struct, frozen=True):
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


def read_tokenization(
    files: ModelFiles,
    prefix: str,
    config: Mapping[str, Any],
    *,
    default_class: str,
    max_positions: int,
    fixed_class: str = "",
    task: str = "feature-extraction",
) -> tuple[Tokenization, int]:
    """The tokenization of the encoder in the subdirectory `prefix` ("" or "0_Transformer/"), and its vocabulary's size.

    Args:
        default_class: tokenizer class if tokenizer_config.json names none.
        fixed_class: tokenizer class whatever tokenizer_config.json names.
        task: what the encoder's module must give, in sentence-transformers' words.
        max_positions: longest text that the encoder's position table holds, in tokens.

    Raises:
        MissingFile: there is no tokenizer.json.
        ModelRefused: the tokenizer is not fully understood; names file and key.
    """
    document = files.object(prefix + _TOKENIZER, "Save the model's tokenizer as tokenizer.json, with transformers.")
    settings = files.optional_object(prefix + _CONFIG)
    reference = _reference_settings(files, prefix, task)
    for key, wrong in (
        ("auto_map", "asks for code, which is never run."),
        ("split_special_tokens", "is not supported."),
    ):
        if settings.get(key):
            raise refusal(prefix + _CONFIG, key, wrong)
    side = settings.get("truncation_side") or (document.get("truncation") or {}).get("direction", "right").lower()
    if side not in ("left", "right"):
        raise refusal(prefix + _CONFIG, "truncation_side", f"is {side!r}; understood: 'left', 'right'.")
    if not isinstance(document.get("model"), dict) or not document["model"].get("vocab"):
        raise refusal(prefix + _TOKENIZER, "model.vocab", "is missing.")
    vocabulary = _vocabulary(prefix + _TOKENIZER, document, int(config["vocab_size"]))
    class_name = fixed_class or _class_name(str(settings.get("tokenizer_class") or default_class), document)
    tokenization = Tokenization(
        file=str(files.path(prefix + _TOKENIZER)),
        max_length=_max_length(prefix, settings, reference, max_positions),
        lower=bool(reference.get("do_lower_case", False)),
        truncation_side=side,
        has_types="token_type_ids" in (settings.get("model_input_names") or _input_names(class_name)),
        parts={
            "truncation": None,
            "padding": None,
            **_parts(files, prefix, class_name, document, settings, vocabulary),
        },
    )
    return tokenization, max(vocabulary.values()) + 1


def _input_names(class_name: str) -> tuple[str, ...]:
    """What transformers gives a model of this tokenizer class, besides ids and mask."""
    return ("token_type_ids",) if class_name in ("BertTokenizer", "DebertaV2Tokenizer") else ()


def _class_name(stated: str, document: Json) -> str:
    """The tokenizer class, without "Fast". A byte-level file that says LlamaTokenizer is taken as it is."""
    steps = _kinds(document.get("pre_tokenizer")) | _kinds(document.get("decoder"))
    name = stated.removesuffix("Fast")
    return "TokenizersBackend" if name == "LlamaTokenizer" and "ByteLevel" in steps else name


def _reference_settings(files: ModelFiles, prefix: str, task: str) -> Json:
    """sentence_bert_config.json, checked: it may change what a text is before the encoder sees it."""
    file = next((prefix + name for name in _ST_FILES if files.has(prefix + name)), prefix + _ST_FILES[0])
    content = files.optional_object(file)
    files.refuse_unknown(file, content, _REFERENCE_KEYS)
    for key, allowed in {**_REFERENCE_ALLOWED, **_TASKS[task], "transformer_task": (task,)}.items():
        if key in content and content[key] not in allowed:
            raise refusal(file, key, f"is {content[key]!r}, which is not understood.")
    return content


def _module(output: str, name: str) -> dict[str, tuple[Any, ...]]:
    modality = {"text": {"method": "forward", "method_output_name": output}}
    return {"modality_config": (modality,), "module_output_name": (name,)}


_TASKS = {
    "feature-extraction": _module("last_hidden_state", "token_embeddings"),
    "fill-mask": _module("logits", "token_embeddings"),
    "sequence-classification": _module("logits", "scores"),
}
_REFERENCE_ALLOWED: dict[str, tuple[Any, ...]] = {
    "do_lower_case": (True, False, None),
    **dict.fromkeys(("query_length", "document_length", "query_expansion", "tokenizer_name_or_path"), (None,)),
    **dict.fromkeys(("processing_kwargs", "model_args", "tokenizer_args", "config_args"), (None, {})),
    **dict.fromkeys(("model_kwargs", "processor_kwargs", "config_kwargs"), (None, {})),
}
_REFERENCE_KEYS = frozenset(_REFERENCE_ALLOWED) | {
    "transformer_task",
    "modality_config",
    "module_output_name",
    "max_seq_length",
    "unpad_inputs",
}


def _max_length(prefix: str, settings: Json, reference: Json, max_positions: int) -> int:
    """As sentence-transformers decides it, but never more than the position table holds."""
    file, key, stated = prefix + _ST_FILES[0], "max_seq_length", reference.get("max_seq_length")
    if stated is None:
        file, key, stated = prefix + _CONFIG, "model_max_length", settings.get("model_max_length")
    if stated is None:
        return max_positions
    if not isinstance(stated, int | float) or not stated >= _MIN_LENGTH:
        raise refusal(file, key, f"is {stated!r}; it must be a number of tokens, at least {_MIN_LENGTH}.")
    return int(min(stated, max_positions))


def _parts(
    files: ModelFiles, prefix: str, name: str, document: Json, settings: Json, vocabulary: dict[str, int]
) -> Json:
    """What tokenizer class `name` builds anew."""
    row = _CLASSES.get(name)
    if row is None:
        raise refusal(prefix + _CONFIG, "tokenizer_class", f"is {name!r}; known are {', '.join(_CLASSES)}.")
    for key, value in row.model.items():
        if document["model"].get(key, value) != value:
            raise refusal(prefix + _TOKENIZER, f"model.{key}", f"is not {value!r}, as a {name} must have it.")
    named = _named_tokens(files, prefix, settings, row.named)

    def token_id(token: str) -> int:
        if token not in vocabulary:
            raise refusal(prefix + _TOKENIZER, "model.vocab", f"has no entry for the special token {token!r}.")
        return vocabulary[token]

    tokens = _listed_tokens(document, settings, keeps_file=row.keeps_added_tokens)
    for key, text in named.items():
        if text in vocabulary:
            plain = {**_PLAIN_TOKEN, "content": text, "id": vocabulary[text], "lstrip": key in row.swallows_blank}
            tokens.setdefault(text, plain)["special"] = True
    for text, token in tokens.items():
        if vocabulary.get(text) != token["id"]:
            raise refusal(prefix + _CONFIG, "added_tokens_decoder", f"gives {text!r} another id than tokenizer.json.")
    added = sorted(tokens.values(), key=lambda token: int(token["id"]))
    return {"added_tokens": added, **row.build(settings, document, named, token_id)}


def _vocabulary(file: str, document: Json, num_rows: int) -> dict[str, int]:
    """Every token's id, added tokens included; all must have a row in the embedding table."""
    entries = document["model"]["vocab"]
    if isinstance(entries, dict):
        vocabulary = dict(entries)
    else:
        vocabulary = {piece: position for position, (piece, _) in enumerate(entries)}
    vocabulary.update({token["content"]: token["id"] for token in document.get("added_tokens", [])})
    worst = max(vocabulary, key=vocabulary.__getitem__)
    if vocabulary[worst] >= num_rows:
        raise refusal(file, repr(worst), f"has id {vocabulary[worst]}, but the embedding table has {num_rows} rows.")
    return vocabulary


def _named_tokens(files: ModelFiles, prefix: str, settings: Json, defaults: dict[str, str]) -> dict[str, str]:
    """The special tokens by name; extra ones under their own text."""
    named = dict(defaults)
    sources = [settings]
    if "added_tokens_decoder" not in settings:
        sources.append(files.optional_object(prefix + "special_tokens_map.json"))
    for source in sources:
        named.update({key: _text(source[key]) for key in _NAMED if source.get(key) is not None})
        for key in ("additional_special_tokens", "extra_special_tokens"):
            extra = source.get(key) or []
            texts = [_text(token) for token in (extra.values() if isinstance(extra, dict) else extra)]
            named.update({text: text for text in texts})
    return named


def _text(token: str | Json) -> str:
    return token if isinstance(token, str) else str(token["content"])


def _listed_tokens(document: Json, settings: Json, *, keeps_file: bool) -> dict[str, Json]:
    """Tokens matched before anything else, by text; tokenizer_config.json's word goes before tokenizer.json's."""
    of_file = {token["content"]: dict(token) for token in document.get("added_tokens", [])}
    decoder = settings.get("added_tokens_decoder")
    if decoder is None:
        return of_file
    stated = {
        token["content"]: {**_PLAIN_TOKEN, **{key: token[key] for key in _PLAIN_TOKEN if key in token}}
        | {"content": token["content"], "id": int(number)}
        for number, token in decoder.items()
    }
    return {**of_file, **stated} if keeps_file else stated


_PLAIN_TOKEN: Json = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


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


def _kinds(step: Json | None) -> set[str]:
    """Types of a step of tokenizer.json and of what it holds."""
    if not step:
        return set()
    inner = step.get("pretokenizers", []) + step.get("decoders", [])
    return {str(step.get("type"))}.union(*map(_kinds, inner))


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

_AS_IT_IS = _TokenizerClass({}, {}, lambda settings, document, named, token_id: {}, keeps_added_tokens=True)

_CLASSES: dict[str, _TokenizerClass] = {
    "PreTrainedTokenizer": _AS_IT_IS,
    "TokenizersBackend": _AS_IT_IS,
    # transformers 5 has no such class left.
    "ElectraTokenizer": _AS_IT_IS,
    "BertTokenizer": _TokenizerClass(_WORD_PIECE, _BERT_NAMES, _bert),
    "DistilBertTokenizer": _TokenizerClass(_WORD_PIECE, _BERT_NAMES, _bert),
    "MPNetTokenizer": _TokenizerClass(
        _WORD_PIECE, {**_ROBERTA_NAMES, "unk_token": "[UNK]"}, _mpnet, swallows_blank=("mask_token",)
    ),
    "RobertaTokenizer": _TokenizerClass(
        {"type": "BPE", "dropout": None, "fuse_unk": False, "byte_fallback": False}, _ROBERTA_NAMES, _roberta
    ),
    "XLMRobertaTokenizer": _TokenizerClass(
        {"type": "Unigram", "unk_id": 3, "byte_fallback": False}, _ROBERTA_NAMES, _xlm_roberta
    ),
    "Qwen2Tokenizer": _TokenizerClass(
        _BYTE_BPE, dict.fromkeys(("unk_token", "eos_token", "pad_token"), "<|endoftext|>"), _qwen2
    ),
    "LlamaTokenizer": _TokenizerClass(
        _FALLBACK_BPE, {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}, _llama
    ),
    "T5Tokenizer": _TokenizerClass(
        {"type": "Unigram", "unk_id": 2, "byte_fallback": False},
        {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
        | {text: text for text in (f"<extra_id_{i}>" for i in range(100))},
        _t5,
    ),
    "DebertaV2Tokenizer": _TokenizerClass(
        {"type": "Unigram", "byte_fallback": False},
        {**_BERT_NAMES, "bos_token": "[CLS]", "eos_token": "[SEP]"},
        _deberta,
    ),
    "GemmaTokenizer": _TokenizerClass(
        {**_FALLBACK_BPE, "unk_token": "<unk>"},
        {f"{name}_token": f"<{name}>" for name in ("unk", "bos", "eos", "pad", "mask")},
        _gemma,
    ),
}
