"""What lies behind an encoder in its own weight files: a classifier, a tagger, the vocabulary's logits. A row a family.

To give a family a head: fields in its row. It knows tensor names and config keys, no graph.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.catalog.encoders import Encoder
from shoal.catalog.families import family_of
from shoal.catalog.files import ModelFiles, refusal
from shoal.catalog.spec import Classifier, HeadLayer, PoolingMode, Sparse, Tagger
from shoal.catalog.weights import weight_shapes

__all__ = ["HEADS", "read_classifier", "read_judge", "read_sparse", "read_tagger"]

Json = dict[str, Any]


class _Layer(msgspec.Struct, frozen=True):
    """A `HeadLayer` of a family: `~` in names stands for the encoder's prefix, `key:NAME` for a value of config.json.

    Attributes:
        epsilon: of the norm, or the config key that holds it.
        bias, norm_bias: whether there is one, or the config key that says so.
    """

    name: str
    activation: str = "identity"
    norm: str = ""
    epsilon: float | str = 1e-12
    bias: bool | str = True
    norm_bias: bool | str = True


class _Row(msgspec.Struct, frozen=True):
    """A family's heads.

    Attributes:
        classifier: layers of *ForSequenceClassification; () = they are not known.
        tagger: layers of *ForTokenClassification.
        pooling: what the classifier stands on, or the config key that says so.
        vocabulary: layers of *ForMaskedLM in front of the decoder.
        decoder: the decoder's tensor where it is not tied to the word embeddings.
        bias: names of the decoder's bias, newest first.
        defaults: of the config keys named above.
    """

    classifier: tuple[_Layer, ...]
    tagger: tuple[_Layer, ...] = (_Layer("classifier"),)
    pooling: str = "cls"
    vocabulary: tuple[_Layer, ...] = ()
    decoder: str = ""
    bias: tuple[str, ...] = ()
    defaults: Json = {}


_ROBERTA_VOCABULARY = (_Layer("lm_head.dense", "gelu", "lm_head.layer_norm", "layer_norm_eps"),)
_MODERNBERT_HEAD = _Layer(
    "head.dense", "key:classifier_activation", "head.norm", "norm_eps", "classifier_bias", "norm_bias"
)

_BERT = _Row(
    (_Layer("~pooler.dense", "tanh"), _Layer("classifier")),
    vocabulary=(
        _Layer(
            "cls.predictions.transform.dense",
            "key:hidden_act",
            "cls.predictions.transform.LayerNorm",
            "layer_norm_eps",
        ),
    ),
    decoder="cls.predictions.decoder.weight",
    bias=("cls.predictions.bias", "cls.predictions.decoder.bias"),
)

HEADS: dict[str, _Row] = {
    "bert": _BERT,
    "ernie": _BERT,
    "roberta": _Row(
        (_Layer("classifier.dense", "tanh"), _Layer("classifier.out_proj")),
        vocabulary=_ROBERTA_VOCABULARY,
        decoder="lm_head.decoder.weight",
        bias=("lm_head.bias", "lm_head.decoder.bias"),
    ),
    "electra": _Row((_Layer("classifier.dense", "gelu"), _Layer("classifier.out_proj"))),
    "deberta-v2": _Row(
        (_Layer("pooler.dense", "key:pooler_hidden_act"), _Layer("classifier")),
        defaults={"pooler_hidden_act": "gelu"},
    ),
    "distilbert": _Row(
        (_Layer("pre_classifier", "relu"), _Layer("classifier")),
        vocabulary=(_Layer("vocab_transform", "key:activation", "vocab_layer_norm"),),
        decoder="vocab_projector.weight",
        bias=("vocab_projector.bias",),
    ),
    "mpnet": _Row(
        (_Layer("classifier.dense", "tanh"), _Layer("classifier.out_proj")),
        vocabulary=_ROBERTA_VOCABULARY,
        decoder="lm_head.decoder.weight",
        bias=("lm_head.bias", "lm_head.decoder.bias"),
    ),
    "modernbert": _Row(
        (_MODERNBERT_HEAD, _Layer("classifier")),
        tagger=(_MODERNBERT_HEAD, _Layer("classifier")),
        pooling="key:classifier_pooling",
        vocabulary=(_MODERNBERT_HEAD,),
        decoder="decoder.weight",
        bias=("decoder.bias",),
        defaults={
            "classifier_activation": "gelu",
            "classifier_pooling": "cls",
            "classifier_bias": False,
            "norm_eps": 1e-5,
            "norm_bias": False,
        },
    ),
    "nomic_bert": _Row(()),
    "gte": _Row(()),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), _Row((), tagger=(_Layer("score"),))),
}
"""Family to its row."""


def read_classifier(files: ModelFiles, folder: str, encoder: Encoder, *, declared: str, ranks: bool) -> Classifier:
    """The classifier that the encoder's config.json describes.

    Args:
        declared: name of the activation that the model's own files ask for, "" for none.
        ranks: whether the model is known to be meant for pairs of a query and a document.

    Raises:
        ModelRefused: names file and key.
    """
    file, row, raw = folder + "config.json", _row(folder, encoder), encoder.raw
    if not row.classifier:
        raise refusal(file, "architectures", f"are for labels of whole texts, not known for {encoder.family}.")
    labels = _labels(file, raw)
    layers = _layers(row.classifier, row, encoder)
    _require_labels(files, folder, layers[-1].name, len(labels))
    pooling = str(_value(row.pooling, row, raw))
    if pooling not in _POOLINGS:
        raise refusal(file, "classifier_pooling", f"is {pooling!r}; understood: {', '.join(_POOLINGS)}.")
    is_plain = all(label == f"LABEL_{place}" for place, label in enumerate(labels))
    entailments = [place for place, label in enumerate(labels) if label.lower().startswith("entail")]
    return Classifier(
        layers=layers,
        labels=labels,
        pooling=_POOLINGS[pooling],
        function=_function(file, raw, len(labels)),
        is_ranker=len(labels) == 1 or (len(labels) == 2 and (is_plain or ranks)),
        activation=_activation(declared, len(labels)),
        entailment=entailments[0] if entailments else -1,
    )


_POOLINGS: dict[str, PoolingMode] = {"cls": "cls", "mean": "mean"}


def read_tagger(files: ModelFiles, folder: str, encoder: Encoder) -> Tagger:
    """The classifier of tokens that the encoder's config.json describes.

    Raises:
        ModelRefused: names file and key.
    """
    row = _row(folder, encoder)
    labels, layers = _labels(folder + "config.json", encoder.raw), _layers(row.tagger, row, encoder)
    _require_labels(files, folder, layers[-1].name, len(labels))
    return Tagger(layers, labels)


def read_judge(
    files: ModelFiles, folder: str, encoder: Encoder, words: tuple[int, ...], *, declared: str
) -> Classifier:
    """A decoder that ranks: the logits of some words of the vocabulary after the last token, and of no others.

    Args:
        words: ids of "no" and "yes", in this order, or of "yes" alone.
        declared: as in `read_classifier`.

    Raises:
        ModelRefused: names file and key.
    """
    file, raw = folder + "config.json", encoder.raw
    if raw.get("final_logit_softcapping") is not None:
        raise refusal(file, "final_logit_softcapping", "is set, which is not understood for a model that ranks.")
    embeddings = family_of(file, raw).embeddings
    is_tied = bool(raw.get("tie_word_embeddings", encoder.family == "gemma3_text"))
    name = f"{encoder.weights_prefix}{embeddings}" if is_tied else "lm_head"
    shape = weight_shapes(files, folder).get(f"{name}.weight")
    if shape is None or not 0 <= max(words) < shape[0] or min(words) < 0:
        reason = f"has shape {shape}; rows {list(words)} are needed." if shape else "is missing: no causal model."
        raise refusal(folder + "model.safetensors", f"{name}.weight", reason)
    return Classifier(
        layers=(HeadLayer(name, has_bias=False, rows=words),),
        labels=("no", "yes")[-len(words) :],
        pooling="last_token",
        is_ranker=True,
        activation=_activation(declared, 1),
    )


def read_sparse(files: ModelFiles, folder: str, encoder: Encoder, pooling: Json) -> Sparse:
    """The sparse head: the vocabulary's logits, pooled as a SpladePooling's config says.

    Raises:
        ModelRefused: names file and key.
    """
    row = _row(folder, encoder)
    if not row.vocabulary:
        raise refusal(folder + "config.json", "model_type", f"is {encoder.family}, whose word head is not known.")
    shapes = weight_shapes(files, folder)
    embeddings = family_of(folder + "config.json", encoder.raw).embeddings
    is_tied = bool(encoder.raw.get("tie_word_embeddings", True))
    decoder = f"{encoder.weights_prefix}{embeddings}.weight" if is_tied else row.decoder
    bias = next((name for name in row.bias if name in shapes), "")
    for name in (decoder, bias or row.bias[0]):
        if name not in shapes:
            raise refusal(folder + "model.safetensors", name, "is missing: these are not the weights of a masked LM.")
    return Sparse(
        layers=_layers(row.vocabulary, row, encoder),
        decoder=decoder,
        bias=bias,
        pooling=pooling.get("pooling_strategy", "max"),
        num_logarithms=2 if pooling.get("activation_function", "relu") == "log1p_relu" else 1,
    )


def _row(folder: str, encoder: Encoder) -> _Row:
    if encoder.family not in HEADS:
        known = ", ".join(HEADS)
        raise refusal(folder + "config.json", "architectures", f"needs a head; known are those of {known}.")
    return HEADS[encoder.family]


def _layers(layers: tuple[_Layer, ...], row: _Row, encoder: Encoder) -> tuple[HeadLayer, ...]:
    raw = encoder.raw
    return tuple(
        HeadLayer(
            name=layer.name.replace("~", encoder.weights_prefix),
            activation=str(_value(layer.activation, row, raw)),
            norm=layer.norm,
            norm_epsilon=float(_value(layer.epsilon, row, raw)),
            has_bias=bool(_value(layer.bias, row, raw)),
            norm_has_bias=bool(_value(layer.norm_bias, row, raw)),
        )
        for layer in layers
    )


def _value(value: Any, row: _Row, raw: Json) -> Any:
    """A value, or that of the config key that it names."""
    key = value.removeprefix("key:") if isinstance(value, str) else ""
    if isinstance(value, str) and (value.startswith("key:") or key in _DEFAULTS or key in row.defaults):
        stated = raw.get(key)
        return {**_DEFAULTS, **row.defaults}[key] if stated is None else stated
    return value


_DEFAULTS: Json = {"hidden_act": "gelu", "activation": "gelu", "layer_norm_eps": 1e-12}


def _labels(file: str, raw: Json) -> tuple[str, ...]:
    """Names by place; transformers leaves two default ones out of config.json."""
    names = raw.get("id2label")
    if names is None:
        return tuple(f"LABEL_{place}" for place in range(int(raw.get("num_labels") or 2)))
    try:
        by_place = {int(place): str(name) for place, name in names.items()}
    except (AttributeError, ValueError):
        by_place = {}
    if not by_place or sorted(by_place) != list(range(len(by_place))):
        raise refusal(file, "id2label", f"is {names!r}; it must number the labels from 0.")
    return tuple(by_place[place] for place in range(len(by_place)))


def _require_labels(files: ModelFiles, folder: str, name: str, num_labels: int) -> None:
    shape = weight_shapes(files, folder).get(f"{name}.weight")
    if shape is None or shape[0] != num_labels:
        raise refusal(
            folder + "model.safetensors",
            f"{name}.weight",
            f"has shape {shape}, but config.json has {num_labels} labels." if shape else "is missing: no classifier.",
        )


def _function(file: str, raw: Json, num_labels: int) -> Any:
    """What transformers' text-classification pipeline applies."""
    problem = raw.get("problem_type")
    functions = {
        "regression": "identity",
        "multi_label_classification": "sigmoid",
        "single_label_classification": "softmax",
        None: "sigmoid" if num_labels == 1 else "softmax",
    }
    if problem not in functions:
        raise refusal(file, "problem_type", f"is {problem!r}; understood: {', '.join(filter(None, functions))}.")
    return "sigmoid" if problem == "single_label_classification" and num_labels == 1 else functions[problem]


def _activation(declared: str, num_labels: int) -> Any:
    """With two labels the relevance is the softmax of the second, which is the sigmoid of their log-odds."""
    if num_labels != 1 or not declared:
        return "sigmoid"
    kind = _ACTIVATIONS.get(declared)
    if kind is None:
        raise refusal("config.json", "activation_fn", f"is {declared!r}; understood: {', '.join(_ACTIVATIONS)}.")
    return kind


_ACTIVATIONS = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.linear.Identity": "identity",
}
