"""Which layout a model can be run in: asked of its class, then found out by running it.

Packed is right only if nothing but attention looks across tokens, and if positions are numbered as the model's own
code would. No flag says so for every model, so a few texts are run packed and, as the reference, padded.
"""

from __future__ import annotations

import logging

import numpy as np
import torch

from shoal.runtimes.base import Features
from shoal.runtimes.torch.attention import CannotPack
from shoal.runtimes.torch.copies import upload
from shoal.runtimes.torch.encoder import Encoder
from shoal.runtimes.torch.layout import Numbering, Part, fill

__all__ = ["try_packed"]

logger = logging.getLogger("shoal.torch")

_LONGEST_PROBE_TOKENS = 1024
_NUMBERINGS: tuple[Numbering, ...] = ("from_zero", "after_padding_id")
_LEAST_AGREEMENT = {torch.float32: 0.99999, torch.float16: 0.995, torch.bfloat16: 0.99}
"""Mean cosine of token states, packed to padded. Half precision differs by its rounding alone; a text that sees
another, a wrong window or a wrong numbering differs by far more."""


@torch.inference_mode()
def try_packed(encoder: Encoder, max_length: int, *, hides_tokens: bool = False) -> bool:
    """Leave the encoder packed, with the numbering that fits, if that gives what padded rows give.

    Args:
        hides_tokens: whether some tokens of a text may be looked at by none.

    Returns:
        Whether it is packed now.
    """
    if not encoder.can_be_asked_to_pack:
        return False
    texts = _probe(encoder, max_length, hides_tokens)
    expected = _states(encoder, texts, width=int(texts.lengths.max()))
    encoder.is_packed = True
    agreements = {numbering: _agreement(encoder, texts, numbering, expected) for numbering in _NUMBERINGS}
    encoder.numbering = max(agreements, key=lambda numbering: agreements[numbering])
    encoder.is_packed = agreements[encoder.numbering] >= _LEAST_AGREEMENT[encoder.dtype]
    if not encoder.is_packed:
        logger.info("%s runs padded: packed it agrees only %s", type(encoder.model).__name__, agreements)
    return encoder.is_packed


def _probe(encoder: Encoder, max_length: int, hides_tokens: bool) -> Features:
    """Texts of random ids, literal padding among them, the longest beyond the attention window if there is one."""
    config = encoder.model.config
    window = getattr(config, "sliding_window", None) or getattr(config, "local_attention", None) or 0
    longest = min(max_length, _LONGEST_PROBE_TOKENS, 2 * window + 48)
    lengths = np.array([longest, *(min(longest, length) for length in (21, 21, 9, 4, 2))], np.int32)
    vocabulary = encoder.model.get_input_embeddings().num_embeddings
    token_ids = np.random.default_rng(0).integers(0, vocabulary, int(lengths.sum())).astype(np.int32)
    token_ids[1::17] = encoder.padding_id
    num_keys = np.maximum(1, lengths * 2 // 3) if hides_tokens else None
    return Features(token_ids, lengths, np.zeros_like(lengths), num_keys=num_keys)


def _states(encoder: Encoder, texts: Features, width: int) -> torch.Tensor:
    part = Part(np.arange(texts.num_items), width)
    arrays = fill(texts, part, encoder.numbering, encoder.padding_id)
    return encoder.states(upload(arrays, encoder.device), width, int(texts.lengths.max())).float()


def _agreement(encoder: Encoder, texts: Features, numbering: Numbering, expected: torch.Tensor) -> float:
    encoder.numbering = numbering
    try:
        states = _states(encoder, texts, width=0)
    except CannotPack as error:
        logger.info("%s cannot run packed: %s", type(encoder.model).__name__, error)
        return -1.0
    return float(torch.nn.functional.cosine_similarity(states, expected, dim=-1).mean())
