"""A model as one graph: encoder, then its heads. The table of families is here.

To add a family: one file in `families`, one row in `FAMILIES`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import msgspec
import openvino as ov

from shoal.catalog.spec import ModelSpec, Pooling, Sparse, TokenWeights
from shoal.errors import ModelRefused
from shoal.runtimes.openvino.heads import classify, tag, vocabulary_logits
from shoal.runtimes.openvino.inputs import Inputs
from shoal.runtimes.openvino.layers import Node
from shoal.runtimes.openvino.pooling import apply_modules, transform
from shoal.runtimes.openvino.weights import Weights, open_weights

__all__ = ["FAMILIES", "Family", "Graph", "build_graph"]


class Family(msgspec.Struct, frozen=True):
    """How a family's graph is built.

    Attributes:
        encode: "module:function" in `families`.
        hidden: config key of the width of token states.
        ignored: patterns of tensors below the prefix that need not be used (heads, pooler, buffers).
    """

    encode: str
    hidden: str = "hidden_size"
    ignored: tuple[str, ...] = ()


_HEADS = (r"pooler\..*", r"(cls|lm_head|classifier|qa_outputs)\..*", r"embeddings\.(position_ids|token_type_ids)")

_DECODER_HEADS = (r"(lm_head|score)\..*", r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")

FAMILIES: dict[str, Family] = {
    "bert": Family("bert:encode", ignored=_HEADS),
    "roberta": Family("bert:encode_roberta", ignored=_HEADS),
    "xlm-roberta": Family("bert:encode_roberta", ignored=_HEADS),
    "distilbert": Family(
        "distilbert:encode",
        hidden="dim",
        ignored=(
            r"vocab_(transform|layer_norm|projector)\..*",
            r"(pre_classifier|classifier|qa_outputs)\..*",
            r"embeddings\.position_ids",
        ),
    ),
    "electra": Family(
        "electra:encode", ignored=(*_HEADS, r"(discriminator|generator)_.*", r"(generator_lm_head|classifier)\..*")
    ),
    "ernie": Family("ernie:encode", ignored=_HEADS),
    "deberta-v2": Family(
        "deberta:encode",
        ignored=(
            r"(pooler|classifier|cls|lm_predictions|mask_predictions|qa_outputs)\..*",
            r"embeddings\.position_ids",
        ),
    ),
    "static": Family("static:encode"),
    "t5": Family(
        "t5:encode",
        hidden="d_model",
        ignored=(r"(decoder|lm_head|classification_head|classifier|qa_outputs)\..*", r"encoder\.embed_tokens\.weight"),
    ),
    "gte": Family("gated:encode_gte", ignored=_HEADS),
    "nomic_bert": Family("gated:encode_nomic", ignored=_HEADS),
    "gemma3_text": Family("gemma3:encode", ignored=_DECODER_HEADS),
    "llama": Family("decoder:encode_llama", ignored=_DECODER_HEADS),
    "mistral": Family("decoder:encode_mistral", ignored=_DECODER_HEADS),
    "qwen2": Family("decoder:encode_qwen2", ignored=_DECODER_HEADS),
    "qwen3": Family("decoder:encode_qwen3", ignored=_DECODER_HEADS),
    "modernbert": Family("modernbert:encode", ignored=(r"(head|decoder|classifier)\..*",)),
    "mpnet": Family("mpnet:encode", ignored=_HEADS),
}
"""Family of a spec to its row."""


class Graph(msgspec.Struct, frozen=True):
    """A graph that is not compiled yet.

    Attributes:
        model: the openvino model; inputs as in `inputs.Inputs`, outputs float32 and those that the spec has heads for:
            `dense` [rows, slots, dimensions], `logits` [rows, slots, labels], `multivector` [rows, width, dimensions],
            `tags` [rows, width, labels], `sparse` [rows, width, vocabulary] (logits) or [rows, width, 1] (weights).
        input_names: those that it declares.
        padding_id: what positions skip, see `inputs.Inputs.positions`.
        weight_bytes: of all weights, as float32.
    """

    model: Any
    input_names: tuple[str, ...]
    padding_id: int | None
    weight_bytes: int


def build_graph(spec: ModelSpec) -> Graph:
    """The graph of a spec, weights mapped from its files.

    Raises:
        ModelRefused: family, configuration, tensors or modules are not understood; names file and key.
    """
    family = FAMILIES.get(spec.family)
    if family is None:
        raise ModelRefused(
            f"{spec.directory}/config.json: the openvino runtime has no graph for family {spec.family!r}.",
            hint=f"It has: {', '.join(sorted(FAMILIES))}.",
        )
    weights = open_weights(spec.weights)
    hides_tokens = spec.multivector is not None and spec.multivector.hides_expansion
    inputs = Inputs(spec.tokenization.max_length, hides_tokens=hides_tokens, pools_firsts=_pools_firsts(spec))
    encoder_weights = weights.under(spec.weights_prefix)
    try:
        states = _encoder(family)(spec.config, encoder_weights, inputs)
        hidden = spec.config[family.hidden]
    except KeyError as error:
        raise ModelRefused(f"{spec.directory}/config.json lacks {error}.") from error
    if inputs.blind:
        raise ModelRefused(f"{spec.directory}: {spec.family} cannot hide the expansion of queries in windows.")
    outputs = _outputs(spec, states, hidden, weights, inputs)
    encoder_weights.refuse_unused(family.ignored)
    for name, output in outputs.items():
        output.output(0).set_names({name})
    model = ov.Model(list(outputs.values()), list(inputs.parameters.values()), spec.family)
    return Graph(model, tuple(inputs.parameters), inputs.padding_id, weights.num_bytes)


def _pools_firsts(spec: ModelSpec) -> bool:
    """Whether each output is made of the state of a text's first token alone."""
    firsts = Pooling(("cls",))
    pools_dense = not spec.modules or spec.modules[0] == firsts
    pools_labels = spec.classifier is None or spec.classifier.pooling == "cls"
    of_all_tokens = (spec.sparse, spec.multivector, spec.tagger)
    return pools_dense and pools_labels and all(head is None for head in of_all_tokens)


def _outputs(spec: ModelSpec, states: Node, hidden: int, weights: Weights, inputs: Inputs) -> dict[str, Node]:
    outputs = {}
    if spec.modules:
        outputs["dense"] = apply_modules(states, hidden, spec.modules, spec.directory, inputs)
    if spec.classifier is not None:
        outputs["logits"] = classify(states, hidden, spec.classifier, weights, inputs)
    if spec.tagger is not None:
        outputs["tags"] = tag(states, hidden, spec.tagger, weights)
    if isinstance(spec.sparse, Sparse):
        outputs["sparse"] = vocabulary_logits(states, hidden, spec.config["vocab_size"], spec.sparse, weights)
    if isinstance(spec.sparse, TokenWeights):
        outputs["sparse"] = transform(states, hidden, [spec.sparse.layer], spec.directory)
    if spec.multivector is not None:
        outputs["multivector"] = transform(states, hidden, spec.multivector.modules, spec.directory)
    return outputs


def _encoder(family: Family) -> Callable[[dict[str, Any], Weights, Inputs], Node]:
    module_name, _, function_name = family.encode.partition(":")
    module = importlib.import_module(f"shoal.runtimes.openvino.families.{module_name}")
    encode: Callable[[dict[str, Any], Weights, Inputs], Node] = getattr(module, function_name)
    return encode
