"""BERT and its nearest relatives: absolute positions, a norm behind each half of a layer."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from shoal.catalog.configs import Family

__all__ = ["ACTIVATIONS", "BERT_ALLOWED", "BERT_DEFAULTS", "FAMILIES"]

ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh")
"""Names that all graphs understand."""

BERT_DEFAULTS: Mapping[str, Any] = types.MappingProxyType(
    {
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    }
)
BERT_ALLOWED: Mapping[str, tuple[Any, ...]] = types.MappingProxyType(
    {
        "hidden_act": ACTIVATIONS,
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    }
)

FAMILIES: tuple[Family, ...] = (
    Family(
        name="bert",
        model_types={"bert": "BertTokenizer"},
        defaults=BERT_DEFAULTS,
        allowed=BERT_ALLOWED,
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "bert."),
    ),
    Family(
        name="roberta",
        model_types={"roberta": "RobertaTokenizer", "xlm-roberta": "XLMRobertaTokenizer"},
        defaults={**BERT_DEFAULTS, "pad_token_id": 1},
        allowed=BERT_ALLOWED,
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "roberta."),
        pads_positions=True,
    ),
    Family(
        name="ernie",
        model_types={"ernie": "BertTokenizer"},
        defaults={**BERT_DEFAULTS, "use_task_id": False, "task_type_vocab_size": 3},
        allowed=BERT_ALLOWED,
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "ernie."),
    ),
    Family(
        name="electra",
        model_types={"electra": "BertTokenizer"},
        defaults={
            **BERT_DEFAULTS,
            "embedding_size": 128,
            "hidden_size": 256,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
        },
        allowed=BERT_ALLOWED,
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "electra."),
        embedding_size_key="embedding_size",
        harmless=frozenset(("summary_type", "summary_use_proj", "summary_activation", "summary_last_dropout")),
    ),
    Family(
        name="distilbert",
        model_types={"distilbert": "BertTokenizer"},
        defaults={
            "vocab_size": 30522,
            "dim": 768,
            "n_layers": 6,
            "n_heads": 12,
            "hidden_dim": 3072,
            "activation": "gelu",
            "max_position_embeddings": 512,
            "pad_token_id": 0,
            # The table is stored with the weights either way.
            "sinusoidal_pos_embds": False,
        },
        allowed={"activation": ACTIVATIONS},
        hidden_size_key="dim",
        num_heads_key="n_heads",
        prefixes=("", "distilbert."),
    ),
    Family(
        name="mpnet",
        model_types={"mpnet": "MPNetTokenizer"},
        defaults={
            "vocab_size": 30527,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "hidden_act": "gelu",
            "max_position_embeddings": 512,
            "layer_norm_eps": 1e-12,
            "relative_attention_num_buckets": 32,
            "pad_token_id": 1,
        },
        # transformers numbers MPNet's positions from 2 whatever pad_token_id says.
        allowed={"hidden_act": ACTIVATIONS, "pad_token_id": (1,)},
        hidden_size_key="hidden_size",
        num_heads_key="num_attention_heads",
        prefixes=("", "mpnet."),
        pads_positions=True,
    ),
)
