"""modules.json and the folders it names: what follows the encoder, in both generations of sentence-transformers' files.

Every module is understood completely or the model is refused; none is skipped, and no pooling is guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from shoal.catalog.files import ModelFiles, refusal
from shoal.catalog.spec import Dense, Module, Normalize, Pooling, PoolingMode
from shoal.catalog.weights import require_shape, tensor_shapes, weights_file
from shoal.errors import ModelRefused

__all__ = [
    "MODULES",
    "TOKENS",
    "Chain",
    "Task",
    "build_modules",
    "read_chain",
    "read_dense",
    "read_logit_score",
    "read_normalize",
    "read_splade",
]

MODULES = "modules.json"
_PACKAGE = "sentence_transformers."
_NO_MODULES = (
    "Without it nothing says how tokens are pooled, and that is never guessed. Save the model with "
    "sentence-transformers, or state `pooling` in a shoal.yaml beside its files."
)
Task = Literal[
    "feature-extraction",
    "multi-vector",
    "fill-mask",
    "sequence-classification",
    "token-classification",
    "text-generation",
]
"""What a model is for, mostly in the hub's words for what its Transformer module gives."""


class Chain(msgspec.Struct, frozen=True):
    """The modules of a model.

    Attributes:
        first: what the first one is: Transformer or StaticEmbedding.
        folder: where it lies: "" or "0_Transformer/".
        task: what the model is for.
        rest: (kind, folder) of the modules that follow.
    """

    first: str
    folder: str
    task: Task
    rest: tuple[tuple[str, str], ...] = ()


def read_chain(files: ModelFiles) -> Chain:
    """modules.json, its order checked.

    Raises:
        MissingFile, ModelRefused: it is missing or not understood.
    """
    rows = files.json(MODULES, _NO_MODULES)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ModelRefused(f"{MODULES}: holds no list of modules.", param=MODULES)
    kinds = [_kind(position, row) for position, row in enumerate(rows)]
    folders = [_folder(position, row) for position, row in enumerate(rows)]
    if kinds[0] not in _FIRST:
        raise refusal(
            MODULES, "[0].type", f"is {rows[0]['type']!r}; the first module must be one of {', '.join(_FIRST)}."
        )
    first = _FIRST[kinds[0]]
    rest = tuple((kind, folder) for kind, folder in zip(kinds[1:], folders[1:], strict=True) if kind != "Dropout")
    task = _task(first, [kind for kind, _ in rest])
    if task is None or any(kind in _FIRST for kind in kinds[1:]):
        raise refusal(
            MODULES,
            "type",
            f"is {' then '.join(kinds)}; understood are StaticEmbedding then others, Transformer then Pooling then "
            "others, Transformer then SpladePooling or LogitScore, Transformer then Dense, Normalize, MultiVectorMask "
            "and HierarchicalTokenPooling, and Transformer alone.",
        )
    return Chain(first, folders[0], task, rest)


def _task(first: str, kinds: list[str]) -> Task | None:
    """What modules in this order are for, None if that is not understood."""
    poolings = [kind for kind in kinds if kind.endswith("Pooling")]
    if first == "StaticEmbedding":
        return None if poolings else "feature-extraction"
    if not kinds:
        return "sequence-classification"
    if kinds == ["SpladePooling"]:
        return "fill-mask"
    if kinds == ["LogitScore"]:
        return "text-generation"
    if set(kinds) <= _TOKEN_KINDS:
        return "multi-vector"
    return "feature-extraction" if poolings == ["Pooling"] == kinds[:1] else None


def build_modules(files: ModelFiles, chain: Chain, width: int) -> tuple[tuple[Module, ...], int]:
    """The modules behind a first one of that width, and the numbers of a vector after them.

    Raises:
        MissingFile, ModelRefused: a module's folder is not understood.
    """
    # A static table has no Pooling of its own: it is the mean of its rows.
    modules: list[Module] = [Pooling(("mean",))] if chain.first == "StaticEmbedding" else []
    for kind, folder in chain.rest:
        module, width = _READERS[kind](files, folder, width)
        modules.append(module)
    return tuple(modules), width


def read_splade(files: ModelFiles, folder: str) -> dict[str, Any]:
    """The config of a SpladePooling.

    Raises:
        MissingFile, ModelRefused: it is missing or not understood.
    """
    file = folder + "config.json"
    content = files.object(file)
    files.refuse_unknown(file, content, _SPLADE_KEYS)
    for key, allowed in (("pooling_strategy", ("max", "sum")), ("activation_function", ("relu", "log1p_relu"))):
        if content.get(key, allowed[0]) not in allowed:
            raise refusal(file, key, f"is {content[key]!r}; understood: {', '.join(allowed)}.")
    return content


def read_logit_score(files: ModelFiles, folder: str) -> tuple[int, ...]:
    """The words of a LogitScore: ids of "no" and "yes", or of "yes" alone.

    Raises:
        MissingFile, ModelRefused: it is missing or not understood.
    """
    file = folder + "config.json"
    content = files.object(file)
    files.refuse_unknown(file, content, frozenset(("true_token_id", "false_token_id", "module_input_name")))
    if content.get("module_input_name", "causal_logits") != "causal_logits":
        raise refusal(file, "module_input_name", f"is {content['module_input_name']!r}, which is not understood.")
    for key in ("true_token_id", "false_token_id"):
        if type(content.get(key)) is not int and (key == "true_token_id" or content.get(key) is not None):
            raise refusal(file, key, f"is {content.get(key)!r}; it must be the id of a token.")
    no, yes = content.get("false_token_id"), content["true_token_id"]
    return (yes,) if no is None else (no, yes)


_SPLADE_KEYS = frozenset(
    ("pooling_strategy", "activation_function", "embedding_dimension", "word_embedding_dimension", "chunk_size")
)
_FIRST = {"Transformer": "Transformer", "MLMTransformer": "Transformer", "StaticEmbedding": "StaticEmbedding"}
"""First modules; the second is an older name of the first."""

_TOKEN_KINDS = frozenset(("Dense", "Normalize", "MultiVectorMask", "HierarchicalTokenPooling"))
"""Modules that follow where each token gets a vector."""

_SENTENCE, TOKENS = "sentence_embedding", "token_embeddings"
"""What a module acts on."""

_PYLATE = {"pylate.models.Dense.Dense": _PACKAGE + "base.modules.dense.Dense"}
"""PyLate's modules, and what they are in sentence-transformers."""


def _kind(position: int, row: dict[str, Any]) -> str:
    full = str(row.get("type", ""))
    full = _PYLATE.get(full, full)
    kind = full.rsplit(".", 1)[-1]
    known = (*_FIRST, "Dropout", "SpladePooling", "LogitScore", *_READERS, *sorted(_TOKEN_KINDS - set(_READERS)))
    if not full.startswith(_PACKAGE) or kind not in known:
        raise refusal(MODULES, f"[{position}].type", f"is {full!r}; known are {', '.join(known)} of {_PACKAGE}*")
    if row.get("kwargs"):
        raise refusal(MODULES, f"[{position}].kwargs", f"is {row['kwargs']!r}, which is not understood.")
    return kind


def _folder(position: int, row: dict[str, Any]) -> str:
    path = str(row.get("path", ""))
    if path.startswith("/") or ".." in path.split("/"):
        raise refusal(MODULES, f"[{position}].path", f"is {path!r}, which leads out of the model's directory.")
    return f"{path.rstrip('/')}/" if path else ""


def _read_pooling(files: ModelFiles, folder: str, width: int) -> tuple[Module, int]:
    file = folder + "config.json"
    content = files.object(file)
    files.refuse_unknown(file, content, _POOLING_KEYS)
    stated = content.get("embedding_dimension", content.get("word_embedding_dimension"))
    if stated != width:
        raise refusal(file, "embedding_dimension", f"is {stated}, but the encoder's width is {width}.")
    modes = tuple(_mode(file, name) for name in _mode_names(file, content))
    return Pooling(modes, include_prompt=bool(content.get("include_prompt", True))), width * len(modes)


def _mode_names(file: str, content: dict[str, Any]) -> list[str]:
    """The modes in the order in which sentence-transformers concatenates them."""
    if "pooling_mode" in content:
        names = content["pooling_mode"]
        listed = [names] if isinstance(names, str) else names
        if isinstance(listed, list) and listed:
            return [str(name) for name in listed]
        raise refusal(file, "pooling_mode", f"is {names!r}; it must be a name or a list of names.")
    names = [name for key, name in _OLD_POOLING_KEYS.items() if content.get(key)]
    if not names:
        raise refusal(file, "pooling_mode", "is not stated, and a pooling is never guessed.")
    return names


def _mode(file: str, name: str) -> PoolingMode:
    if name not in _MODES:
        raise refusal(file, "pooling_mode", f"is {name!r}; known are {', '.join(_MODES)}.")
    return _MODES[name]


_MODES: dict[str, PoolingMode] = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
    "lasttoken": "last_token",
}
_OLD_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_POOLING_KEYS = frozenset(_OLD_POOLING_KEYS) | {
    "embedding_dimension",
    "word_embedding_dimension",
    "pooling_mode",
    "include_prompt",
}


def read_dense(files: ModelFiles, folder: str, width: int, feature: str = _SENTENCE) -> tuple[Dense, int]:
    """A Dense that acts on `feature`, and the numbers that it gives.

    Raises:
        MissingFile, ModelRefused: it does not take `width` numbers, or is not understood.
    """
    file = folder + "config.json"
    content = files.object(file)
    files.refuse_unknown(file, content, _DENSE_KEYS)
    _require_feature(file, content, feature, feature)
    if content.get("use_residual"):
        raise refusal(file, "use_residual", "is true, which is not understood.")
    name = str(content.get("activation_function", "torch.nn.modules.activation.Tanh"))
    if name not in _ACTIVATIONS:
        raise refusal(file, "activation_function", f"is {name!r}; known are {', '.join(_ACTIVATIONS)}.")
    if content.get("in_features") != width:
        raise refusal(file, "in_features", f"is {content.get('in_features')}, but {width} numbers come in.")
    out_features, has_bias = content.get("out_features"), bool(content.get("bias", True))
    if not isinstance(out_features, int):
        raise refusal(file, "out_features", f"is {out_features!r}; it must be a number.")
    weights = weights_file(files, folder)
    shapes = tensor_shapes(files, weights)
    require_shape(weights, "linear.weight", shapes, (out_features, width))
    if has_bias:
        require_shape(weights, "linear.bias", shapes, (out_features,))
    dense = Dense(str(files.path(weights)), width, out_features, _ACTIVATIONS[name], has_bias)
    return dense, out_features


_ACTIVATIONS: dict[str, Literal["identity", "tanh", "relu", "gelu", "sigmoid"]] = {
    "torch.nn.modules.linear.Identity": "identity",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
}
_DENSE_KEYS = frozenset(
    (
        "in_features",
        "out_features",
        "bias",
        "activation_function",
        "module_input_name",
        "module_output_name",
        "use_residual",
    )
)


def read_normalize(files: ModelFiles, folder: str, width: int, feature: str = _SENTENCE) -> tuple[Normalize, int]:
    """A Normalize that acts on `feature`, and `width`.

    Raises:
        ModelRefused: it acts on something else.
    """
    # Before sentence-transformers 5 the folder did not even exist.
    file = folder + "config.json"
    content = files.optional_object(file)
    files.refuse_unknown(file, content, frozenset(("module_input_name", "module_output_name")))
    _require_feature(file, content, feature, _SENTENCE)
    return Normalize(), width


def _require_feature(file: str, content: dict[str, Any], feature: str, default: str) -> None:
    """A module must act on `feature`; if its config does not say, it acts on `default`."""
    taken = content.get("module_input_name") or default
    for key, value in (
        ("module_input_name", taken),
        ("module_output_name", content.get("module_output_name") or taken),
    ):
        if value != feature:
            raise refusal(file, key, f"is {value!r}; only {feature!r} is understood here.")


_READERS: dict[str, Callable[[ModelFiles, str, int], tuple[Module, int]]] = {
    "Pooling": _read_pooling,
    "Dense": read_dense,
    "Normalize": read_normalize,
}
