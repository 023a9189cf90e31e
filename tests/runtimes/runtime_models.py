"""Tiny models with random weights in every corner, saved as safetensors, and the reference they are held against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import torch
import transformers
from safetensors.torch import save_file
from sentence_transformers.sentence_transformer.modules import Dense as ReferenceDense
from sentence_transformers.sentence_transformer.modules import Normalize as ReferenceNormalize
from sentence_transformers.sentence_transformer.modules import Pooling as ReferencePooling

from shoal.catalog.spec import Dense, ModelSpec, Module, Normalize, Pooling, Tokenization
from shoal.runtimes.base import Features

Ids = npt.NDArray[np.int32]

VOCABULARY = 150
MAX_LENGTH = 140
_SIZES = {"vocab_size": VOCABULARY, "pad_token_id": 1, "attn_implementation": "eager"}
_BERT = _SIZES | {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "max_position_embeddings": MAX_LENGTH + 2,
    "layer_norm_eps": 1e-6,
}
_DISTIL = {"dim": 48, "n_layers": 3, "n_heads": 4, "hidden_dim": 80, "max_position_embeddings": MAX_LENGTH}
_CONFIGS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "bert": (transformers.BertConfig, transformers.BertModel, _BERT | {"pad_token_id": 0}),
    "roberta": (transformers.RobertaConfig, transformers.RobertaModel, _BERT),
    "xlm-roberta": (transformers.XLMRobertaConfig, transformers.XLMRobertaModel, _BERT | {"type_vocab_size": 1}),
    "distilbert": (transformers.DistilBertConfig, transformers.DistilBertModel, _SIZES | _DISTIL),
    "mpnet": (transformers.MPNetConfig, transformers.MPNetModel, _BERT),
}

_REFERENCE_MODES = {"mean_sqrt_len": "mean_sqrt_len_tokens", "weighted_mean": "weightedmean", "last_token": "lasttoken"}
_REFERENCE_ACTIVATIONS = {
    "identity": torch.nn.Identity,
    "tanh": torch.nn.Tanh,
    "relu": torch.nn.ReLU,
    "gelu": torch.nn.GELU,
    "sigmoid": torch.nn.Sigmoid,
}


class TinyModel(msgspec.Struct):
    """A model in both forms; `reference` embeds one text at a time, alone and unpadded."""

    spec: ModelSpec
    encoder: Any
    after: list[Any]

    def reference(self, texts: Sequence[Ids], prompt_length: int = 0) -> npt.NDArray[np.float32]:
        with torch.inference_mode():
            return np.concatenate([self._embed(ids, prompt_length) for ids in texts])

    def _embed(self, ids: Ids, prompt_length: int) -> npt.NDArray[np.float32]:
        input_ids = torch.tensor(ids[None].astype(np.int64))
        attention_mask = torch.ones_like(input_ids)
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        features = {"token_embeddings": states, "attention_mask": attention_mask, "prompt_length": prompt_length}
        for module in self.after:
            features = module(features)
        return features["sentence_embedding"].numpy()


def randomise(module: torch.nn.Module, seed: int) -> None:
    """Weights so far from a fresh model's that a forgotten bias, norm or embedding shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_norm = "norm" in name.lower() and name.endswith("weight")
            parameter.copy_(1 + 0.3 * noise if is_norm else 0.25 * noise)


def build(
    directory: Path, family: str, modules: tuple[Module, ...], *, dtype: torch.dtype = torch.float32, **config: Any
) -> TinyModel:
    """A tiny model of the family in `directory`, its encoder's tensors stored as `dtype`."""
    config_class, model_class, sizes = _CONFIGS[family]
    encoder = model_class(config_class(**(sizes | config))).eval()
    randomise(encoder, seed=len(family))
    encoder = encoder.to(dtype).float()
    save_file(
        {name: tensor.to(dtype).contiguous() for name, tensor in encoder.state_dict().items()},
        directory / "model.safetensors",
    )
    facts = encoder.config.to_dict()
    after, size = [], facts.get("dim") or facts["hidden_size"]
    for i, module in enumerate(modules):
        after.append(_reference_module(directory, module, size, seed=i))
        size = size * len(module.modes) if isinstance(module, Pooling) else getattr(module, "out_features", size)
    spec = ModelSpec(
        id=f"tiny-{family}",
        directory=str(directory),
        family=family,
        config=facts,
        weights=(str(directory / "model.safetensors"),),
        tokenization=Tokenization(file="", max_length=MAX_LENGTH),
        modules=modules,
        dimensions=size,
    )
    return TinyModel(spec, encoder, after)


def _reference_module(directory: Path, module: Module, size: int, seed: int) -> Any:
    if isinstance(module, Pooling):
        modes = tuple(_REFERENCE_MODES.get(mode, mode) for mode in module.modes)
        return ReferencePooling(size, modes, include_prompt=module.include_prompt)
    if isinstance(module, Normalize):
        return ReferenceNormalize()
    assert isinstance(module, Dense)
    dense = ReferenceDense(
        size, module.out_features, bias=module.has_bias, activation_function=_REFERENCE_ACTIVATIONS[module.activation]()
    ).eval()
    randomise(dense, seed)
    (directory / module.weights_file).parent.mkdir(exist_ok=True)
    save_file(dense.state_dict(), directory / module.weights_file)
    return dense


def features(texts: Sequence[Ids], pool_from: int = 0) -> Features:
    """A ragged batch."""
    return Features(
        token_ids=np.concatenate(texts).astype(np.int32),
        lengths=np.array([len(ids) for ids in texts], np.int32),
        pool_from=np.full(len(texts), pool_from, np.int32),
    )


def random_texts(lengths: Sequence[int], seed: int = 0) -> list[Ids]:
    """Token ids that hold every id of the tiny vocabulary, padding ids too."""
    generator = np.random.default_rng(seed)
    return [generator.integers(0, VOCABULARY, length).astype(np.int32) for length in lengths]


def cosines(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Row by row."""
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    return (a64 * b64).sum(1) / np.linalg.norm(a64, axis=1) / np.linalg.norm(b64, axis=1)
