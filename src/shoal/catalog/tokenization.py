"""tokenizer.json and tokenizer_config.json to `Tokenization`: what transformers' AutoTokenizer would make of them.

transformers 5 takes only the vocabulary from tokenizer.json for the tokenizer classes it knows, and builds normaliser,
pre-tokenizer, post-processor and added tokens anew from tokenizer_config.json. So do the rows of `tokenizer_classes`;
what they build stands in `Tokenization.parts`. Knows the files, not the tokenizers library.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from shoal.catalog.files import ModelFiles, refusal
from shoal.catalog.spec import Tokenization
from shoal.catalog.tokenizer_classes import CLASSES

__all__ = ["MIN_LENGTH", "Words", "read_tokenization", "reference_settings", "token_ids"]

_CONFIG = "tokenizer_config.json"
_TOKENIZER = "tokenizer.json"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
MIN_LENGTH = 3
"""Two special tokens and one of the text's own."""
_ST_FILES = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)

Json = dict[str, Any]


class Words(msgspec.Struct, frozen=True):
    """A tokenizer's vocabulary.

    Attributes:
        ids: of every token, added ones included.
        named: special tokens by name (`mask_token`), as the tokenizer's class has them.
        longest: tokens of the longest text that the encoder's position table holds.
        pads_left: whether its padding stands in front.
    """

    ids: dict[str, int] = {}
    named: dict[str, str] = {}
    longest: int = 0
    pads_left: bool = False

    def id_of(self, name: str) -> int:
        """Id of a special token by its name, -1 if there is none."""
        return self.ids.get(self.named.get(name, ""), -1)


def read_tokenization(
    files: ModelFiles,
    prefix: str,
    config: Mapping[str, Any],
    *,
    default_class: str,
    max_positions: int,
    fixed_class: str = "",
    task: str = "feature-extraction",
) -> tuple[Tokenization, Words]:
    """The tokenization of the encoder in the subdirectory `prefix` ("" or "0_Transformer/"), and its vocabulary.

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
    reference = reference_settings(files, prefix, task)
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
    unknown, parts = _parts(files, prefix, class_name, document, settings, vocabulary)
    tokenization = Tokenization(
        file=str(files.path(prefix + _TOKENIZER)),
        max_length=_max_length(prefix, settings, reference, max_positions),
        lower=bool(reference.get("do_lower_case", False)),
        truncation_side=side,
        has_types="token_type_ids" in (settings.get("model_input_names") or _input_names(class_name)),
        unknown=unknown,
        parts={"truncation": None, "padding": None, **parts},
    )
    defaults = CLASSES[class_name].named
    padding_side = settings.get("padding_side") or (document.get("padding") or {}).get("direction", "right")
    words = Words(
        ids=vocabulary,
        named=_named_tokens(files, prefix, settings, defaults),
        longest=max_positions,
        pads_left=padding_side.lower() == "left",
    )
    return tokenization, words


def token_ids(files: ModelFiles, prefix: str, tokens: tuple[str, ...], key: str) -> tuple[int, ...]:
    """Ids of tokens of the vocabulary.

    Raises:
        ModelRefused: one is not in it; `key` is who names it.
    """
    document = files.object(prefix + _TOKENIZER)
    vocabulary = _vocabulary(prefix + _TOKENIZER, document, sys.maxsize)
    for token in tokens:
        if token not in vocabulary:
            raise refusal(prefix + _TOKENIZER, "model.vocab", f"has no entry {token!r}, which {key} names.")
    return tuple(vocabulary[token] for token in tokens)


def _input_names(class_name: str) -> tuple[str, ...]:
    """What transformers gives a model of this tokenizer class, besides ids and mask."""
    return ("token_type_ids",) if class_name in ("BertTokenizer", "DebertaV2Tokenizer") else ()


def _class_name(stated: str, document: Json) -> str:
    """The tokenizer class, without "Fast". A byte-level file that says LlamaTokenizer is taken as it is."""
    steps = _kinds(document.get("pre_tokenizer")) | _kinds(document.get("decoder"))
    name = stated.removesuffix("Fast")
    return "TokenizersBackend" if name == "LlamaTokenizer" and "ByteLevel" in steps else name


def reference_settings(files: ModelFiles, prefix: str, task: str) -> Json:
    """sentence_bert_config.json, checked: it may change what a text is before the encoder sees it."""
    file = next((prefix + name for name in _ST_FILES if files.has(prefix + name)), prefix + _ST_FILES[0])
    content = files.optional_object(file)
    files.refuse_unknown(file, content, _REFERENCE_KEYS)
    for key, allowed in {**_REFERENCE_ALLOWED, "transformer_task": (task,), **_TASKS[task]}.items():
        if key in content and content[key] not in allowed:
            raise refusal(file, key, f"is {content[key]!r}, which is not understood.")
    return content


def _module(output: str, name: str) -> dict[str, tuple[Any, ...]]:
    modality = {"text": {"method": "forward", "method_output_name": output}}
    return {"modality_config": (modality,), "module_output_name": (name,)}


class _Anything(tuple[Any, ...]):
    """Whatever the key says; somebody else reads it."""

    def __contains__(self, value: object) -> bool:
        return True


_SIDES = ("query_length", "document_length", "query_expansion")
_LOGITS = {"method": "forward", "method_output_name": "logits"}
_TASKS: dict[str, dict[str, tuple[Any, ...]]] = {
    "feature-extraction": _module("last_hidden_state", "token_embeddings"),
    "multi-vector": {
        **_module("last_hidden_state", "token_embeddings"),
        "transformer_task": ("feature-extraction",),
        **dict.fromkeys(_SIDES, _Anything()),
    },
    "fill-mask": _module("logits", "token_embeddings"),
    "sequence-classification": _module("logits", "scores"),
    "token-classification": _module("logits", "token_embeddings"),
    "text-generation": {
        "modality_config": tuple(
            {"text": _LOGITS, "message": {**_LOGITS, "format": kind}} for kind in ("flat", "structured")
        ),
        "module_output_name": ("causal_logits",),
        "processing_kwargs": (
            None,
            {},
            *({"chat_template": {"add_generation_prompt": is_added}} for is_added in (True, False)),
        ),
    },
}
_REFERENCE_ALLOWED: dict[str, tuple[Any, ...]] = {
    "do_lower_case": (True, False, None),
    **dict.fromkeys((*_SIDES, "tokenizer_name_or_path"), (None,)),
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
    if not isinstance(stated, int | float) or not stated >= MIN_LENGTH:
        raise refusal(file, key, f"is {stated!r}; it must be a number of tokens, at least {MIN_LENGTH}.")
    return int(min(stated, max_positions))


def _parts(
    files: ModelFiles, prefix: str, name: str, document: Json, settings: Json, vocabulary: dict[str, int]
) -> tuple[str, Json]:
    """The unknown token, and what tokenizer class `name` builds anew."""
    row = CLASSES.get(name)
    if row is None:
        raise refusal(prefix + _CONFIG, "tokenizer_class", f"is {name!r}; known are {', '.join(CLASSES)}.")
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
    return named.get("unk_token", ""), {"added_tokens": added, **row.build(settings, document, named, token_id)}


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


def _kinds(step: Json | None) -> set[str]:
    """Types of a step of tokenizer.json and of what it holds."""
    if not step:
        return set()
    inner = step.get("pretokenizers", []) + step.get("decoders", [])
    return {str(step.get("type"))}.union(*map(_kinds, inner))
