"""Static embeddings (model2vec): a table with a vector for each token, and a tokenizer; no encoder, no config.json."""

from __future__ import annotations

from shoal.catalog.encoders import Encoder
from shoal.catalog.files import ModelFiles, refusal
from shoal.catalog.spec import Tokenization
from shoal.catalog.weights import tensor_shapes

__all__ = ["read_static"]

_WEIGHTS = "model.safetensors"
_TOKENIZER = "tokenizer.json"
_TENSORS = ("embedding.weight", "embeddings")
"""What sentence-transformers and model2vec call the table."""

_LONGEST = 8192
"""Tokens of a text where the tokenizer sets no limit; longer ones are cut, and flagged."""


def read_static(files: ModelFiles, folder: str, task: str) -> Encoder:
    """The table and the tokenizer in `folder`.

    Raises:
        MissingFile: one of the two is not there.
        ModelRefused: the file holds something else besides, or the table has no row for a token.
    """
    shapes = tensor_shapes(files, folder + _WEIGHTS)
    name = next((name for name in _TENSORS if len(shapes.get(name, ())) == 2), None)
    if name is None:
        raise refusal(folder + _WEIGHTS, " or ".join(_TENSORS), "is missing: not a table of static embeddings.")
    num_rows, width = shapes[name]
    tokenization, vocabulary_size = _tokenization(files, folder + _TOKENIZER, num_rows)
    config = {"vocab_size": num_rows, "hidden_size": width, "table": name}
    return Encoder(
        family="static",
        config=config,
        weights=(str(files.path(folder + _WEIGHTS)),),
        tokenization=tokenization,
        vocabulary_size=vocabulary_size,
        width=width,
    )


def _tokenization(files: ModelFiles, file: str, num_rows: int) -> tuple[Tokenization, int]:
    """The file's tokenizer as it is, but for special tokens, which are never added."""
    document = files.object(file, "Static embeddings need their tokenizer as tokenizer.json.")
    vocabulary = (document.get("model") or {}).get("vocab")
    if not vocabulary:
        raise refusal(file, "model.vocab", "is missing.")
    highest = max(vocabulary.values()) if isinstance(vocabulary, dict) else len(vocabulary) - 1
    highest = max([highest, *(token["id"] for token in document.get("added_tokens", []))])
    if highest >= num_rows:
        raise refusal(file, "model.vocab", f"has an id {highest}, but the table has {num_rows} rows.")
    truncation = document.get("truncation") or {}
    tokenization = Tokenization(
        file=str(files.path(file)),
        max_length=int(truncation.get("max_length", _LONGEST)),
        truncation_side="left" if truncation.get("direction") == "Left" else "right",
        parts={"truncation": None, "padding": None, "post_processor": None},
    )
    return tokenization, highest + 1
