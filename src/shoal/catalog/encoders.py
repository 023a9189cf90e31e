"""What comes first in a model: an encoder of the family table, from its config.json, weights and tokenizer."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.catalog.configs import complete_config
from shoal.catalog.families import family_of
from shoal.catalog.files import ModelFiles
from shoal.catalog.spec import Tokenization
from shoal.catalog.tokenization import Words, read_tokenization
from shoal.catalog.weights import find_weights

__all__ = ["Encoder", "read_transformer"]

_CONFIG = "config.json"


class Encoder(msgspec.Struct, frozen=True):
    """See `ModelSpec` for the fields of the same names.

    Attributes:
        width: of token states.
        words: its tokenizer's vocabulary.
        raw: config.json as it stands, for what lies behind the encoder; {} where there is none.
        code: `organisation/model@commit` of the code that the encoder is made by, () = of none of its own.
    """

    family: str
    config: dict[str, Any]
    weights: tuple[str, ...]
    tokenization: Tokenization
    vocabulary_size: int
    width: int
    weights_prefix: str = ""
    raw: dict[str, Any] = {}
    words: Words = Words()
    code: tuple[str, ...] = ()


def read_transformer(files: ModelFiles, folder: str, task: str) -> Encoder:
    """The encoder in a subdirectory ("" or "0_Transformer/"), of a model that is for `task`.

    Raises:
        MissingFile: names the file.
        ModelRefused: something is not understood; names file and key.
    """
    raw = files.object(folder + _CONFIG)
    family = family_of(folder + _CONFIG, raw)
    config = complete_config(files, folder + _CONFIG, raw, family)
    weights, weights_prefix = find_weights(files, folder, family, config)
    own_class = family.model_types[raw["model_type"]]
    tokenization, words = read_tokenization(
        files,
        folder,
        config,
        default_class=raw.get("tokenizer_class") or own_class,
        fixed_class=own_class if family.fixes_tokenizer else "",
        max_positions=family.max_positions(config),
        task=task,
    )
    return Encoder(
        family=family.name,
        config=config,
        weights=weights,
        weights_prefix=weights_prefix,
        tokenization=tokenization,
        vocabulary_size=max(words.ids.values()) + 1,
        width=int(config[family.hidden_size_key]),
        raw=raw,
        words=words,
    )
