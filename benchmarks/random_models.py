"""Models of real shapes with random weights and the demo model's tokenizer, saved by sentence-transformers.

Time depends on shapes; what a weight is matters only where it decides how much there is to return, so a sparse model's
bias is set to leave about as many words as trained ones do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from shoal.catalog import resolve

__all__ = ["save_cross_encoder", "save_decoder_embedder", "save_sparse_encoder"]

TOKENIZER = "sentence-transformers/all-MiniLM-L6-v2"


def save_cross_encoder(directory: Path, config: Any) -> Path:
    """A CrossEncoder whose scores are spread out; returns its directory."""
    from sentence_transformers import CrossEncoder

    bare = _save_bare(directory / "bare", transformers.AutoModelForSequenceClassification, config)
    CrossEncoder(str(bare), device="cpu").save_pretrained(str(directory / "cross-encoder"))
    return directory / "cross-encoder"


def save_sparse_encoder(directory: Path, config: Any, words_above_zero: float) -> Path:
    """A SPLADE model of which about that share of the words of a text's tokens are above zero; its directory."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import SpladePooling, Transformer

    bare = _save_bare(directory / "bare", transformers.AutoModelForMaskedLM, config, words_above_zero)
    modules = [Transformer(str(bare), transformer_task="fill-mask"), SpladePooling()]
    SparseEncoder(modules=modules, device="cpu").save_pretrained(str(directory / "sparse-encoder"))
    return directory / "sparse-encoder"


def save_decoder_embedder(directory: Path, config: Any) -> Path:
    """A decoder that embeds by its last token's state; returns its directory."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    bare = _save_bare(directory / "bare", transformers.AutoModel, config)
    modules = [Transformer(str(bare)), Pooling(config.hidden_size, "lasttoken"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(directory / "decoder-embedder"))
    return directory / "decoder-embedder"


def _save_bare(directory: Path, auto: Any, config: Any, words_above_zero: float = 0.0) -> Path:
    tokenizer = transformers.AutoTokenizer.from_pretrained(resolve(TOKENIZER).directory)
    tokenizer.model_max_length = config.max_position_embeddings
    tokenizer.save_pretrained(directory)
    torch.manual_seed(0)
    model = auto.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embed" not in name:
                parameter.mul_(3)  # else attention is even, and every text gives nearly the same
        if words_above_zero:
            _shift(model, tokenizer.vocab_size, words_above_zero)
    model.save_pretrained(directory)
    return directory


def _shift(model: Any, vocabulary_size: int, words_above_zero: float) -> None:
    """Lower the bias of the words until that share is above zero in a text of random tokens."""
    ids = torch.randint(1000, vocabulary_size, (1, 100))
    largest = model(input_ids=ids).logits[0].amax(0)
    threshold = largest.quantile(1 - words_above_zero)
    model.get_output_embeddings().bias.sub_(threshold)
