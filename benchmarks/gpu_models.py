"""Random-weight encoders for benchmarks/gpu.py, and what they are held against on the same device.

Needs torch, transformers, numpy and msgspec alone: no tokenizer's vocabulary, no network. sentence-transformers is
used where it can be imported; without it the reference is the padded transformers model with mean pooling.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers

from shoal.catalog.spec import ModelSpec, Normalize, Pooling, Tokenization
from shoal.runtimes.base import Features

__all__ = ["Reference", "features", "has_sentence_transformers", "plain_vectors", "random_lengths", "save_model"]

Floats = npt.NDArray[np.float32]
MODULES = (Pooling(("mean",)), Normalize())


def save_model(
    directory: Path, config: Any, dtype: torch.dtype = torch.float32, *, is_scrambled: bool = False
) -> ModelSpec:
    """A model of random weights in a directory; scrambled, no bias is 0, no norm is 1, and attention is not even."""
    torch.manual_seed(0)
    family: Any = transformers.AutoModel
    model = family.from_config(config)
    if is_scrambled:
        _scramble(model)
    model.to(dtype).save_pretrained(directory)
    _save_tokenizer(directory, config.vocab_size)
    return ModelSpec(
        id=directory.name,
        directory=str(directory),
        family=config.model_type,
        config=config.to_dict(),
        weights=tuple(sorted(str(path) for path in directory.glob("*.safetensors"))),
        tokenization=Tokenization(file="", max_length=512),
        modules=MODULES,
        dimensions=config.hidden_size,
        vocabulary_size=config.vocab_size,
    )


@torch.no_grad()
def _scramble(model: torch.nn.Module) -> None:
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        if "norm" in name.lower() and name.endswith("weight"):
            parameter.copy_(1 + 0.2 * noise)
        elif parameter.dim() == 2 and "embed" not in name:
            parameter.copy_(noise * 1.5 / parameter.shape[1] ** 0.5)
        else:
            parameter.copy_(0.3 * noise)


def _save_tokenizer(directory: Path, vocabulary_size: int) -> None:
    """A tokenizer of made-up words, because sentence-transformers loads no model without one."""
    import tokenizers

    words = {f"w{number}": number for number in range(vocabulary_size)}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w1"))  # noqa: S106
    tokenizer: Any = transformers.PreTrainedTokenizerFast
    tokenizer(tokenizer_object=plain, pad_token="w0").save_pretrained(directory)  # noqa: S106


def random_lengths(kind: str, num_tokens: int) -> npt.NDArray[np.int32]:
    """Lengths that come to about so many tokens: a number, or `FIRST-LAST` for texts of many lengths."""
    first, _, last = kind.partition("-")
    low, high = int(first), int(last or first)
    count = max(1, round(num_tokens / ((low + high) / 2)))
    return np.random.default_rng(7).integers(low, high + 1, count).astype(np.int32)


def features(lengths: npt.NDArray[np.int32], vocabulary_size: int) -> Features:
    """A batch of random ids."""
    ids = np.random.default_rng(8).integers(2, vocabulary_size, int(lengths.sum())).astype(np.int32)
    return Features(ids, lengths, np.zeros_like(lengths))


def has_sentence_transformers() -> bool:
    """Whether the reference can be the real one."""
    return importlib.util.find_spec("sentence_transformers") is not None


def plain_vectors(directory: Path, batch: Features, device: torch.device, dtype: torch.dtype) -> Floats:
    """transformers alone, each text in a forward of its own, mean pooling and length 1 in float32."""
    model = transformers.AutoModel.from_pretrained(directory, dtype=dtype, attn_implementation="eager")
    model = model.eval().to(device)
    rows = []
    with torch.inference_mode():
        for ids in np.split(batch.token_ids, np.cumsum(batch.lengths)[:-1]):
            given = torch.from_numpy(ids.astype(np.int64))[None].to(device)
            states = model(input_ids=given, attention_mask=torch.ones_like(given)).last_hidden_state
            rows.append(torch.nn.functional.normalize(states[0].float().mean(0), dim=0).cpu().numpy())
    return np.stack(rows)


class Reference:
    """sentence-transformers' own forward, or one like it, on ids: sorted by length, padded, batch after batch."""

    def __init__(self, directory: Path, device: torch.device, dtype: torch.dtype) -> None:
        self._device = device
        build = _sentence_transformer if has_sentence_transformers() else _plain_transformer
        self._forward = build(directory, device, dtype)

    def run(self, batch: Features, batch_size: int) -> Floats:
        """Vectors in the order of the batch, on the CPU."""
        texts = np.split(batch.token_ids, np.cumsum(batch.lengths)[:-1])
        order = np.argsort(-batch.lengths, kind="stable")
        vectors = []
        with torch.inference_mode():
            for start in range(0, len(texts), batch_size):
                rows = [texts[item] for item in order[start : start + batch_size]]
                ids = np.zeros((len(rows), len(rows[0])), np.int64)
                mask = np.zeros_like(ids)
                for row, text in enumerate(rows):
                    ids[row, : len(text)], mask[row, : len(text)] = text, 1
                given = {"input_ids": ids, "attention_mask": mask}
                vectors.append(self._forward({name: torch.from_numpy(x).to(self._device) for name, x in given.items()}))
            joined = torch.cat(vectors).float().cpu().numpy()
        unsorted = np.empty_like(joined)
        unsorted[order] = joined
        return unsorted


Forward = Callable[[dict[str, torch.Tensor]], torch.Tensor]


def _sentence_transformer(directory: Path, device: torch.device, dtype: torch.dtype) -> Forward:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    encoder = modules.Transformer(str(directory))
    pooling = modules.Pooling(encoder.get_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[encoder, pooling, modules.Normalize()], device=str(device)).to(dtype).eval()
    return lambda given: model(given)["sentence_embedding"]


def _plain_transformer(directory: Path, device: torch.device, dtype: torch.dtype) -> Forward:
    model = transformers.AutoModel.from_pretrained(directory, dtype=dtype).eval().to(device)

    def forward(given: dict[str, torch.Tensor]) -> torch.Tensor:
        states = model(**given).last_hidden_state
        mask = given["attention_mask"][..., None]
        pooled = (states * mask).sum(1, dtype=torch.float32) / mask.sum(1)
        return torch.nn.functional.normalize(pooled, dim=1)

    return forward
