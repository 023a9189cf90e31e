"""Tiny sentence-transformers models with random weights and real tokenizers, saved by sentence-transformers itself.

They stand in for trained models wherever only agreement with the reference counts: four architectures, every pooling,
Dense and Normalize behind it, prompts. Weights are far from their initial values (no bias is 0, no LayerNorm is 1, and
attention is far from uniform), so that a forgotten or swapped tensor shows. `conftest.py` caches them for a session.

    directory = save_tiny_model(tmp_path / "m", TinyModel("mpnet", pooling="cls", dense=((24, "Tanh"),)))
    reference = load_reference(directory)
"""

from __future__ import annotations

import dataclasses
import functools
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import tokenizers
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from tokenizers import models, normalizers, pre_tokenizers, trainers

__all__ = [
    "ARCHITECTURES",
    "NASTY_TEXTS",
    "Architecture",
    "TinyModel",
    "encode_reference",
    "load_reference",
    "save_tiny_model",
]

Architecture = Literal["bert", "roberta", "xlm-roberta", "distilbert", "mpnet"]
ARCHITECTURES: tuple[Architecture, ...] = ("bert", "roberta", "xlm-roberta", "distilbert", "mpnet")


@dataclasses.dataclass(frozen=True)
class TinyModel:
    """What to build.

    Attributes:
        architecture: model_type of the encoder.
        pooling: a mode as sentence-transformers names it, or several.
        dense: (out_features, torch.nn activation class) of each Dense module.
        normalize: whether a Normalize module comes last.
        include_prompt: pooling's own flag.
        prompts: (name, text) pairs.
        max_length: tokens, special tokens included; position tables are made to fit.
        hidden_size: of the encoder; 4 heads.
        config: further (key, value) pairs for the encoder's config.
    """

    architecture: Architecture = "bert"
    pooling: str | tuple[str, ...] = "mean"
    dense: tuple[tuple[int, str], ...] = ()
    normalize: bool = True
    include_prompt: bool = True
    prompts: tuple[tuple[str, str], ...] = ()
    default_prompt_name: str | None = None
    max_length: int = 128
    hidden_size: int = 32
    num_layers: int = 2
    seed: int = 0
    config: tuple[tuple[str, Any], ...] = ()


def save_tiny_model(directory: Path, recipe: TinyModel) -> Path:
    """Build the model and save it as sentence-transformers does; returns the directory."""
    with quiet():
        encoder_directory = directory / "encoder"
        tokenizer = _tokenizer(recipe.architecture, recipe.max_length)
        tokenizer.save_pretrained(encoder_directory)
        encoder = transformers.AutoModel.from_config(_encoder_config(recipe, len(tokenizer)))
        _randomise(encoder, recipe.seed)
        encoder.save_pretrained(encoder_directory)
        model = SentenceTransformer(
            modules=_modules(encoder_directory, recipe),
            prompts=dict(recipe.prompts),
            default_prompt_name=recipe.default_prompt_name,
            device="cpu",
        )
        target = directory / "model"
        model.save(str(target), create_model_card=False)
    return target


def load_reference(directory: Path | str) -> SentenceTransformer:
    """sentence-transformers on the same files: float32 on CPU."""
    with quiet():
        return SentenceTransformer(str(directory), device="cpu", local_files_only=True).eval()


def encode_reference(model: SentenceTransformer, texts: list[str], **options: Any) -> npt.NDArray[np.float32]:
    """The right vectors: each text encoded alone, so that no padding is involved. float32 [len(texts), dimensions]."""
    with quiet():
        rows = [model.encode([text], show_progress_bar=False, **options)[0] for text in texts]
    return np.stack(rows)


@contextmanager
def quiet() -> Iterator[None]:
    """Reference libraries may warn while they build and load; what is under test may not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _modules(encoder_directory: Path, recipe: TinyModel) -> list[torch.nn.Module]:
    transformer = Transformer(str(encoder_directory), processor_kwargs={"model_max_length": recipe.max_length})
    pooling = Pooling(recipe.hidden_size, pooling_mode=recipe.pooling, include_prompt=recipe.include_prompt)
    modules: list[torch.nn.Module] = [transformer, pooling]
    width = pooling.get_embedding_dimension()
    for position, (out_features, activation) in enumerate(recipe.dense):
        dense = Dense(width, out_features, activation_function=getattr(torch.nn, activation)())
        _randomise(dense, recipe.seed + 1 + position)
        modules.append(dense)
        width = out_features
    return [*modules, Normalize()] if recipe.normalize else modules


def _encoder_config(recipe: TinyModel, vocabulary_size: int) -> transformers.PretrainedConfig:
    extra = dict(recipe.config)
    if recipe.architecture == "distilbert":
        return transformers.DistilBertConfig(
            vocab_size=vocabulary_size,
            dim=recipe.hidden_size,
            n_heads=4,
            n_layers=recipe.num_layers,
            hidden_dim=2 * recipe.hidden_size,
            max_position_embeddings=recipe.max_length,
            **extra,
        )
    # RoBERTa and MPNet number positions from pad_token_id + 1 = 2.
    offset = 0 if recipe.architecture == "bert" else 2
    return transformers.AutoConfig.for_model(
        recipe.architecture,
        vocab_size=vocabulary_size,
        hidden_size=recipe.hidden_size,
        num_attention_heads=4,
        num_hidden_layers=recipe.num_layers,
        intermediate_size=2 * recipe.hidden_size,
        max_position_embeddings=recipe.max_length + offset,
        **extra,
    )


@torch.no_grad()
def _randomise(module: torch.nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "LayerNorm.weight" in name or "layer_norm.weight" in name:
            parameter.copy_(1 + 0.2 * noise)
        elif parameter.dim() == 2 and "embeddings" in name:
            parameter.copy_(0.5 * noise)
        elif parameter.dim() == 2:
            parameter.copy_(noise * 1.5 / parameter.shape[1] ** 0.5)
        else:
            parameter.copy_(0.2 * noise)


def _tokenizer(architecture: Architecture, max_length: int) -> transformers.PreTrainedTokenizerBase:
    if architecture == "roberta":
        vocabulary, merges = _byte_level_bpe()
        return transformers.RobertaTokenizer(vocab=vocabulary, merges=merges, model_max_length=max_length)
    if architecture == "xlm-roberta":
        return transformers.XLMRobertaTokenizer(vocab=_unigram(), model_max_length=max_length)
    if architecture == "mpnet":
        vocabulary = _word_pieces(("<s>", "<pad>", "</s>", "[UNK]", "<mask>"))
        return transformers.MPNetTokenizer(vocab=vocabulary, model_max_length=max_length)
    vocabulary = _word_pieces(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
    kind = transformers.BertTokenizer if architecture == "bert" else transformers.DistilBertTokenizer
    return kind(vocab=vocabulary, model_max_length=max_length)


@functools.cache
def _word_pieces(special: tuple[str, ...]) -> dict[str, int]:
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=700, special_tokens=list(special), show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return _sorted_vocabulary(tokenizer)


@functools.cache
def _byte_level_bpe() -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return _sorted_vocabulary(tokenizer), _merges(tokenizer)


def _merges(tokenizer: tokenizers.Tokenizer) -> list[tuple[str, str]]:
    pairs = json.loads(tokenizer.to_str())["model"]["merges"]
    return [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in pairs]


@functools.cache
def _unigram() -> list[tuple[str, float]]:
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    trainer = trainers.UnigramTrainer(
        vocab_size=500,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    pieces = [(piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]
    return [*pieces, ("<mask>", 0.0)]


def _sorted_vocabulary(tokenizer: tokenizers.Tokenizer) -> dict[str, int]:
    return dict(sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1]))


_CORPUS = [
    "The quick brown fox jumps over the lazy dog, then sleeps under the old oak tree by the river.",
    "Boundary layer flow over a flat plate at high Reynolds number was measured in the wind tunnel.",
    "A queue holds chunks of text; a worker with room pulls them, runs the model and replies at once.",
    "What is the capital of France? Paris is the capital and the largest city of France.",
    "def quicksort(items):\n    if len(items) <= 1:\n        return items\n    pivot = items[0]",
    "Machine learning models embed sentences into vectors so that similar meanings lie close together.",
    "In 1969, 650 million people watched the first men walk on the moon; it cost $25.4 billion.",
    "Die Grundrechte binden Gesetzgebung, vollziehende Gewalt und Rechtsprechung als unmittelbar geltendes Recht.",
    "Der Käufer einer mangelhaften Sache kann nach dem Gesetz Nacherfüllung, Rücktritt oder Minderung verlangen.",
    "Les montagnes sont couvertes de neige; joyeux noël et bonne année à tous les élèves de l'école.",
    "El perro corre por la playa mientras el niño juega con la pelota roja, ¡qué día tan bonito!",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "東京は日本の首都です。今日は天気がいいですね。機械学習のモデル。",
    "北京是中国的首都，今天天气很好，我们去公园散步吧。",
    "안녕하세요, 오늘 날씨가 좋네요. 서울은 한국의 수도입니다.",
    "مرحبا بالعالم، هذا نص قصير باللغة العربية عن الطقس اليوم.",
    "Emoji are text as well: 😀 🎉 👩‍💻 🇩🇪 ❤️ and so are ™, ½, ﬁ and Å.",
    "query: how do I reset my password? passage: open the settings page and choose reset.",
    "Represent this sentence for searching relevant passages: aeroelastic models of heated high speed aircraft.",
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen",
]
"""What the tokenizers are trained on: many scripts, code, digits."""

NASTY_TEXTS = [
    "",
    " ",
    "  \t ",
    "\n\n\n",
    "cat",
    " cat",
    "cat ",
    "cat\n",
    "Cat",
    "CAT\tcat\r\ncat",
    "a",
    "é",
    "e\u0301 combining, na\u00efve co\u00f6peration \u00c5ngstr\u00f6m \u1e9e \u0130stanbul",
    "zero\u200bwidth, no\u00a0break, soft\u00adhyphen, bom\ufeff, rtl \u202eabc\u202c",
    "control \x00 \x01 \x1f \x7f characters \ufffd",
    "😀 👩‍💻👨‍👩‍👧‍👦 🇩🇪 ❤️ 🏳️‍🌈",
    "東京は日本の首都です。北京是中国的首都",
    "안녕하세요 мир مرحبا שלום ไทย हिन्दी",
    "𝕳𝖊𝖑𝖑𝖔 ﬁne Ⅷ ½ ㎏ ｆｕｌｌ　ｗｉｄｔｈ",
    "[CLS] literal [SEP] and [PAD] and [MASK] and [UNK] tokens[SEP]",
    "<s> literal </s> and <pad> and <mask> and <unk> </s><|endoftext|>",
    " <mask> x<mask>y  [MASK] z",
    "def f(x):\n    if x:\n        return {'a': [1, 2, 3]}  # tabs\t\there\n",
    "https://example.com/a?b=c&d=%20e#f user@example.org C:\\path\\file.txt",
    "1,234,567.89 +49 (0)30 123456 2026-01-02T03:04:05Z",
    "!!!???...,,,;;;:::---___***///\\\\\\|||@@@###$$$%%%^^^&&&",
    "a" * 300,
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "word " * 700,
    "The quick brown fox jumps over the lazy dog. " * 60,
    "東" * 900,
    "x\n" * 400,
]
"""Texts that tokenizers trip over: blanks, controls, scripts, emoji, literal special tokens, far too long."""
