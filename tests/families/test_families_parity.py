"""Each family, from its saved files to vectors, against sentence-transformers: alone, and packed with neighbours.

To add a family: one row in `ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from families.conftest import ONE_THREAD
from parity import Parity
from shoal.adapters import open_adapter
from shoal.adapters.base import Adapter
from shoal.catalog import resolve
from shoal.errors import InvalidRequest
from shoal.runtimes.openvino.runtime import OpenVINORuntime
from shoal.types import EmbedOptions
from tiny_models import ARCHITECTURES, NASTY_TEXTS, TinyModel, encode_reference

FULL, SLIDING = "full_attention", "sliding_attention"
LAST = {"pooling": "lasttoken"}
SHARED_HEADS = (("num_key_value_heads", 2), ("head_dim", 16))
DISTANCES = (
    ("relative_attention", True),
    ("pos_att_type", ("c2p", "p2c")),
    ("position_buckets", 16),
    ("norm_rel_ebd", "layer_norm"),
)
ROWS = {
    **{name: TinyModel(name) for name in ARCHITECTURES},
    "ernie": TinyModel("ernie", config=(("use_task_id", True),)),
    "electra": TinyModel("electra", pooling="cls", config=(("embedding_size", 24),)),
    "electra-without-projection": TinyModel("electra", config=(("embedding_size", 32),)),
    "modernbert": TinyModel("modernbert", num_layers=4, config=(("local_attention", 16),)),
    "modernbert-with-biases": TinyModel(
        "modernbert",
        pooling="cls",
        config=(("norm_bias", True), ("attention_bias", True), ("mlp_bias", True), ("layer_types", (SLIDING, FULL))),
    ),
    "qwen3": TinyModel("qwen3", **LAST, config=SHARED_HEADS),
    "qwen3-bidirectional": TinyModel("qwen3", config=(*SHARED_HEADS, ("attention_bias", True), ("is_causal", False))),
    "qwen3-windows": TinyModel(
        "qwen3",
        **LAST,
        config=(*SHARED_HEADS, ("use_sliding_window", True), ("sliding_window", 8), ("max_window_layers", 1)),
    ),
    "qwen2": TinyModel("qwen2", **LAST, config=(("num_key_value_heads", 1),)),
    "llama": TinyModel("llama", config=(("num_key_value_heads", 2), ("attention_bias", True), ("mlp_bias", True))),
    "llama-slowed": TinyModel(
        "llama",
        **LAST,
        max_length=300,
        config=(
            (
                "rope_parameters",
                (
                    ("rope_type", "llama3"),
                    ("rope_theta", 10000.0),
                    ("factor", 8.0),
                    ("low_freq_factor", 1.0),
                    ("high_freq_factor", 4.0),
                    ("original_max_position_embeddings", 100),
                ),
            ),
        ),
    ),
    "mistral": TinyModel("mistral", **LAST, config=(*SHARED_HEADS, ("sliding_window", 9))),
    "mistral-bidirectional": TinyModel("mistral", config=(*SHARED_HEADS, ("sliding_window", 9), ("is_causal", False))),
    "mistral-whole": TinyModel(
        "mistral",
        config=(
            ("num_key_value_heads", 4),
            ("sliding_window", None),
            ("rope_parameters", (("rope_type", "linear"), ("rope_theta", 500.0), ("factor", 4.0))),
        ),
    ),
    "gemma3": TinyModel(
        "gemma3_text",
        config=(*SHARED_HEADS, ("sliding_window", 9), ("layer_types", (SLIDING, FULL)), ("query_pre_attn_scalar", 20)),
    ),
    "gemma3-bidirectional": TinyModel(
        "gemma3_text",
        num_layers=6,
        config=(*SHARED_HEADS, ("sliding_window", 12), ("use_bidirectional_attention", True)),
    ),
    "t5": TinyModel("t5", max_length=200),
    "t5-gated": TinyModel(
        "t5",
        dense=((24, "Identity"),),
        config=(
            ("feed_forward_proj", "gated-gelu"),
            ("relative_attention_num_buckets", 8),
            ("relative_attention_max_distance", 20),
        ),
    ),
    "deberta-v3": TinyModel(
        "deberta-v2", config=(*DISTANCES, ("position_biased_input", False), ("share_att_key", True))
    ),
    "deberta-v2": TinyModel(
        "deberta-v2",
        pooling="cls",
        config=(*DISTANCES, ("conv_kernel_size", 3), ("conv_act", "gelu"), ("type_vocab_size", 2)),
    ),
    "deberta-one-way": TinyModel(
        "deberta-v2",
        config=(
            ("relative_attention", True),
            ("pos_att_type", ("p2c",)),
            ("max_relative_positions", 20),
            ("embedding_size", 24),
        ),
    ),
    "deberta-without-distances": TinyModel("deberta-v2"),
    "nomic_bert": TinyModel("nomic_bert"),
    "gte": TinyModel("gte", pooling="cls"),
    "gte-without-types": TinyModel("gte", config=(("type_vocab_size", 0), ("hidden_act", "silu"))),
    "static": TinyModel("static"),
    "static-bare": TinyModel("static", normalize=False),
}
TEXTS = [*NASTY_TEXTS, "mountains", "query: where is the sea", "The quick brown fox and the lazy dog. " * 3]


@pytest.mark.parametrize("name", ROWS)
def test_family_equals_the_reference(
    name: str, tiny_model: Callable[..., Path], reference: Callable[[Path], SentenceTransformer], parity: Parity
) -> None:
    directory = tiny_model(ROWS[name])
    spec = resolve(str(directory))
    adapter = open_adapter(spec)
    session = OpenVINORuntime().load(spec, ONE_THREAD)
    texts = [text for text in TEXTS if has_tokens(adapter, text)]
    assert all(text in texts for text in TEXTS if text.strip())
    prepared = adapter.prepare(texts, EmbedOptions())
    judge = reference(directory)
    for text, item in zip(texts, prepared, strict=True):
        assert item.token_ids.tolist() == judge.preprocess([text])["input_ids"].flatten().tolist(), text[:60]
    expected = encode_reference(judge, texts)
    together = session.run(adapter.collate(prepared))["dense"]
    alone = np.concatenate([session.run(adapter.collate([item]))["dense"] for item in prepared])
    parity.check(ROWS[name].architecture, "dense", "openvino", expected, together, alone)
    session.close()


def has_tokens(adapter: Adapter, text: str) -> bool:
    """A blank text has none where the tokenizer drops blanks and adds no special tokens."""
    try:
        adapter.prepare([text], EmbedOptions())
    except InvalidRequest:
        return False
    return True


def test_a_text_without_a_token_is_refused(tiny_model: Callable[..., Path]) -> None:
    adapter = open_adapter(resolve(str(tiny_model(ROWS["static"]))))
    with pytest.raises(InvalidRequest, match=r"input\[7\] has no tokens") as refused:
        adapter.prepare(["cat", " "], EmbedOptions(), first_item=6)
    assert refused.value.param == "input[7]"
