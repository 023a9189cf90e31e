"""Tiny models that give a vector a token: random weights, in each form in which such models are saved.

directory = save_tiny_multivector(tmp_path, TinyMultiVector("modernbert", expansion=(("attend", True),)))
reference = load_multivector(directory)
rows = token_vectors(reference, ["a text"], "query")
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
import transformers
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling, MultiVectorMask

from tiny_architectures import Architecture, encoder_config, tokenizer_of
from tiny_models import TinyModel, quiet, randomise, save_tiny_model

__all__ = [
    "M3_MODEL",
    "TinyMultiVector",
    "load_multivector",
    "m3_outputs",
    "save_tiny_m3",
    "save_tiny_multivector",
    "token_vectors",
]

Side = Literal["query", "document"]
_MARKERS = {"query": "[Q] ", "document": "[D] "}
_HIDDEN = 32


@dataclasses.dataclass(frozen=True)
class TinyMultiVector:
    """What to build.

    Attributes:
        form: whose files: sentence-transformers', PyLate's, or Stanford's (which is always a BERT).
        knows_markers: whether [Q] and [D] are tokens of the vocabulary.
        expansion: of sentence-transformers' query_expansion; None = there is none.
        stated: keys of config_sentence_transformers.json (pylate) or of artifact.metadata (stanford).
        skipped: characters that have no vector in documents.
        mask: further options of MultiVectorMask.
        merging: options of a HierarchicalTokenPooling; () = there is none.
    """

    architecture: Architecture = "bert"
    form: Literal["native", "pylate", "stanford"] = "native"
    dimensions: int = 16
    knows_markers: bool = True
    expansion: tuple[tuple[str, Any], ...] | None = (("strategy", "fixed"), ("length", 32))
    query_length: int | None = None
    document_length: int | None = 48
    stated: tuple[tuple[str, Any], ...] = ()
    skipped: str = string.punctuation
    mask: tuple[tuple[str, Any], ...] = ()
    merging: tuple[tuple[str, Any], ...] = ()
    similarity: str | None = None
    max_length: int = 64
    num_layers: int = 2
    seed: int = 5
    config: tuple[tuple[str, Any], ...] = ()


def save_tiny_multivector(directory: Path, recipe: TinyMultiVector) -> Path:
    """Build the model and save it; returns the directory."""
    with quiet():
        bare, whole = directory / "bare", directory / "whole"
        encoder = _save_encoder(bare, recipe)
        dense = Dense(
            _HIDDEN, recipe.dimensions, bias=False, activation_function=None, module_input_name="token_embeddings"
        )
        randomise(dense, recipe.seed + 1)
        if recipe.form == "native":
            _save_native(bare, whole, recipe, dense)
        elif recipe.form == "pylate":
            _save_pylate(bare, whole, recipe, dense)
        else:
            _save_stanford(bare, whole, recipe, encoder, dense)
    return whole


def _save_encoder(directory: Path, recipe: TinyMultiVector) -> transformers.PreTrainedModel:
    tokenizer = tokenizer_of(recipe.architecture, recipe.max_length)
    if recipe.form == "stanford":
        vocabulary = tokenizer.get_vocab()
        vocabulary |= {f"[unused{number}]": len(vocabulary) + number for number in range(2)}
        tokenizer = transformers.BertTokenizer(vocab=vocabulary, model_max_length=recipe.max_length)
    elif recipe.knows_markers:
        tokenizer.add_tokens(list(_MARKERS.values()))
    tokenizer.save_pretrained(directory)
    config = encoder_config(
        recipe.architecture,
        len(tokenizer),
        hidden_size=_HIDDEN,
        num_layers=recipe.num_layers,
        max_length=recipe.max_length,
        extra=dict(recipe.config),
    )
    encoder = transformers.AutoModel.from_config(config)
    randomise(encoder, recipe.seed)
    encoder.save_pretrained(directory)
    return encoder


def _save_native(bare: Path, whole: Path, recipe: TinyMultiVector, dense: Dense) -> None:
    transformer = Transformer(
        str(bare),
        query_length=recipe.query_length,
        document_length=recipe.document_length,
        query_expansion=None if recipe.expansion is None else dict(recipe.expansion),
    )
    mask = MultiVectorMask(list(recipe.skipped), **{key: _listed(value) for key, value in recipe.mask})
    modules = [transformer, dense, mask, Normalize(module_input_name="token_embeddings")]
    if recipe.merging:
        modules.append(HierarchicalTokenPooling(**{key: _listed(value) for key, value in recipe.merging}))
    model = MultiVectorEncoder(
        modules=modules, prompts=dict(_MARKERS), device="cpu", similarity_fn_name=recipe.similarity
    )
    model.save_pretrained(str(whole), create_model_card=False)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _save_pylate(bare: Path, whole: Path, recipe: TinyMultiVector, dense: Dense) -> None:
    """As PyLate's `ColBERT.save_pretrained` lays files out."""
    shutil.copytree(bare, whole)
    (whole / "1_Dense").mkdir()
    dense.save(str(whole / "1_Dense"))
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    stated = {
        "__version__": {"sentence_transformers": "4.0.2", "transformers": "4.48.2", "pytorch": "2.5.1"},
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
        "query_prefix": _MARKERS["query"],
        "document_prefix": _MARKERS["document"],
        "query_length": 32,
        "document_length": 48,
        "attend_to_expansion_tokens": False,
        "skiplist_words": list(string.punctuation),
    }
    kept = {key: value for key, value in {**stated, **dict(recipe.stated)}.items() if value is not ...}
    (whole / "modules.json").write_text(json.dumps(modules))
    (whole / "config_sentence_transformers.json").write_text(json.dumps(kept))
    (whole / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 47, "do_lower_case": False}))


def _save_stanford(bare: Path, whole: Path, recipe: TinyMultiVector, encoder: Any, dense: Dense) -> None:
    """As colbert-ir/colbertv2.0: a BertModel and a linear layer in one file."""
    shutil.copytree(bare, whole)
    config = json.loads((whole / "config.json").read_text())
    (whole / "config.json").write_text(json.dumps({**config, "architectures": ["HF_ColBERT"]}))
    tensors = {f"bert.{name}": tensor.contiguous() for name, tensor in encoder.state_dict().items()}
    tensors["linear.weight"] = dense.linear.weight.detach().contiguous()
    safetensors.torch.save_file(tensors, whole / "model.safetensors", metadata={"format": "pt"})
    stated = {"query_maxlen": 32, "doc_maxlen": 48, "mask_punctuation": True, "attend_to_mask_tokens": False}
    stated |= {"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "dim": recipe.dimensions}
    kept = {key: value for key, value in {**stated, **dict(recipe.stated)}.items() if value is not ...}
    (whole / "artifact.metadata").write_text(json.dumps(kept))


def load_multivector(directory: Path) -> MultiVectorEncoder:
    """The reference on the same files: float32 on CPU."""
    with quiet():
        return MultiVectorEncoder(str(directory), device="cpu", local_files_only=True).eval()


def token_vectors(
    model: MultiVectorEncoder, texts: Sequence[str], side: Side, **options: Any
) -> list[npt.NDArray[np.float32]]:
    """Each text encoded alone: a matrix for each, float32 [vectors, dimensions]."""
    encode = model.encode_query if side == "query" else model.encode_document
    with quiet():
        return [encode(text, convert_to_numpy=True, show_progress_bar=False, **options) for text in texts]


M3_MODEL = TinyModel("xlm-roberta", pooling="cls", max_length=96)


def save_tiny_m3(directory: Path, dimensions: int = 24, *, keeps_safetensors: bool = False) -> Path:
    """As bge-m3: a dense model, and two linear layers that torch saved, in float16.

    Args:
        keeps_safetensors: else the encoder's weights, too, lie there as torch saved them.
    """
    target = directory / "m3"
    shutil.copytree(save_tiny_model(directory / "dense", M3_MODEL), target)
    for name, out_features in (("sparse_linear", 1), ("colbert_linear", dimensions)):
        layer = torch.nn.Linear(_HIDDEN, out_features)
        randomise(layer, out_features)
        torch.save(layer.half().state_dict(), target / f"{name}.pt")
    if not keeps_safetensors:
        torch.save(safetensors.torch.load_file(target / "model.safetensors"), target / "pytorch_model.bin")
        (target / "model.safetensors").unlink()
    return target


@torch.no_grad()
def m3_outputs(
    directory: Path, texts: Sequence[str]
) -> tuple[list[dict[int, float]], list[npt.NDArray[np.float32]], npt.NDArray[np.float32]]:
    """Sparse weights, vectors of tokens, and dense vectors, by the formulas that FlagEmbedding publishes.

    FlagEmbedding itself is not installed: it brings a stack for training along. From its BGEM3 model and M3Embedder:
    the weight of a token is relu(linear(state)), the largest of each id, special tokens left out; vectors are
    linear(state) from the second token on, normalised; the dense vector is the first state, normalised.
    """
    with quiet():
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        encoder = transformers.AutoModel.from_pretrained(directory).eval()
    layers = {
        name: {key: tensor.float() for key, tensor in torch.load(directory / f"{name}.pt", weights_only=True).items()}
        for name in ("sparse_linear", "colbert_linear")
    }
    named = (tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id)
    weights, vectors, dense = [], [], []
    for text in texts:
        features = tokenizer(text, truncation=True, max_length=M3_MODEL.max_length, return_tensors="pt")
        states = encoder(**features).last_hidden_state[0]
        linear = torch.nn.functional.linear
        of_tokens = torch.relu(linear(states, **layers["sparse_linear"]))[:, 0].tolist()
        largest: dict[int, float] = {}
        for token_id, weight in zip(features["input_ids"][0].tolist(), of_tokens, strict=True):
            if token_id not in named and weight > largest.get(token_id, 0.0):
                largest[token_id] = weight
        weights.append(largest)
        rows = linear(states[1:], **layers["colbert_linear"])
        vectors.append(torch.nn.functional.normalize(rows, dim=-1).numpy())
        dense.append(torch.nn.functional.normalize(states[0], dim=-1).numpy())
    return weights, vectors, np.stack(dense)
