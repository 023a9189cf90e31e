"""Small configs and real, freshly trained tokenizers of every architecture, for `tiny_models`."""

from __future__ import annotations

import functools
import json
from typing import Any, Literal

import tokenizers
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

__all__ = ["ARCHITECTURES", "Architecture", "encoder_config", "tokenizer_of"]

Architecture = Literal[
    "bert",
    "roberta",
    "xlm-roberta",
    "distilbert",
    "mpnet",
    "electra",
    "ernie",
    "modernbert",
    "qwen2",
    "qwen3",
    "llama",
    "mistral",
    "gemma3_text",
    "t5",
    "deberta-v2",
    "nomic_bert",
    "gte",
    "static",
]
ARCHITECTURES: tuple[Architecture, ...] = ("bert", "roberta", "xlm-roberta", "distilbert", "mpnet")
"""Those that the tests of every layer run over; `tests/families` has the others."""


def encoder_config(
    architecture: Architecture,
    vocabulary_size: int,
    *,
    hidden_size: int,
    num_layers: int,
    max_length: int,
    extra: dict[str, Any],
) -> transformers.PretrainedConfig:
    """A small config of that architecture with 4 heads; `extra` holds further keys."""
    if architecture == "distilbert":
        return transformers.DistilBertConfig(
            vocab_size=vocabulary_size,
            dim=hidden_size,
            n_heads=4,
            n_layers=num_layers,
            hidden_dim=2 * hidden_size,
            max_position_embeddings=max_length,
            **extra,
        )
    if architecture == "t5":
        return transformers.T5Config(
            vocab_size=vocabulary_size,
            d_model=hidden_size,
            num_heads=4,
            num_layers=num_layers,
            d_ff=2 * hidden_size,
            **{"d_kv": 12, **extra},
        )
    if architecture not in ("bert", "electra", "ernie", "nomic_bert"):
        # Their defaults are ids of large vocabularies.
        names = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
        extra = {**(dict.fromkeys(names) if architecture not in ARCHITECTURES else {}), **extra}
    # RoBERTa and MPNet number positions from pad_token_id + 1 = 2.
    offset = 2 if architecture in ("roberta", "xlm-roberta", "mpnet") else 0
    return transformers.AutoConfig.for_model(
        architecture,
        vocab_size=vocabulary_size,
        hidden_size=hidden_size,
        num_attention_heads=4,
        num_hidden_layers=num_layers,
        intermediate_size=2 * hidden_size,
        max_position_embeddings=max_length + offset,
        **extra,
    )


def tokenizer_of(architecture: Architecture, max_length: int) -> transformers.PreTrainedTokenizerBase:
    """The architecture's own tokenizer class, trained on a small corpus."""
    if architecture == "roberta":
        vocabulary, merges = _byte_level_bpe()
        return transformers.RobertaTokenizer(vocab=vocabulary, merges=merges, model_max_length=max_length)
    if architecture in ("xlm-roberta", "gte"):
        return transformers.XLMRobertaTokenizer(
            vocab=[*_unigram(("<s>", "<pad>", "</s>", "<unk>")), ("<mask>", 0.0)], model_max_length=max_length
        )
    if architecture == "mpnet":
        vocabulary = _word_pieces(("<s>", "<pad>", "</s>", "[UNK]", "<mask>"))
        return transformers.MPNetTokenizer(vocab=vocabulary, model_max_length=max_length)
    if architecture == "t5":
        pieces = _unigram(("<pad>", "</s>", "<unk>"))
        extra_ids = [(f"<extra_id_{i}>", 0.0) for i in range(99, -1, -1)]
        return transformers.T5Tokenizer(vocab=[*pieces, *extra_ids], model_max_length=max_length)
    if architecture == "deberta-v2":
        pieces = _unigram(("[PAD]", "[CLS]", "[SEP]", "[UNK]"))
        return transformers.DebertaV2Tokenizer(vocab=[*pieces, ("[MASK]", 0.0)], unk_id=3, model_max_length=max_length)
    if architecture in ("qwen2", "qwen3"):
        return _qwen2(max_length)
    if architecture in ("llama", "mistral", "gemma3_text"):
        return _with_byte_fallback(architecture, max_length)
    if architecture == "modernbert":
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=_byte_level_with_specials(), model_max_length=max_length, **_BRACKETED
        )
    vocabulary = _word_pieces(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
    kind = transformers.DistilBertTokenizer if architecture == "distilbert" else transformers.BertTokenizer
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


def _qwen2(max_length: int) -> transformers.PreTrainedTokenizerBase:
    """As Qwen3-Embedding's: its post-processor, which stands in tokenizer.json only, puts the last token in place."""
    vocabulary, merges = _byte_level_bpe()
    vocabulary = {**vocabulary, "<|endoftext|>": len(vocabulary), "<|im_start|>": len(vocabulary) + 1}
    tokenizer = transformers.Qwen2Tokenizer(
        vocab=vocabulary, merges=merges, model_max_length=max_length, extra_special_tokens=["<|im_start|>"]
    )
    end = [("<|endoftext|>", vocabulary["<|endoftext|>"])]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <|endoftext|>", pair="$A $B <|endoftext|>", special_tokens=end
    )
    return tokenizer


def _with_byte_fallback(architecture: str, max_length: int) -> transformers.PreTrainedTokenizerBase:
    """As Llama's and Gemma's: sentencepiece's BPE, with a token for each byte."""
    is_gemma = architecture == "gemma3_text"
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"] if is_gemma else ["<unk>", "<s>", "</s>"]
    vocabulary, merges = _blank_marked_bpe((*names, *(f"<0x{byte:02X}>" for byte in range(256))))
    kind = transformers.GemmaTokenizer if is_gemma else transformers.LlamaTokenizer
    padding = "<pad>" if is_gemma else "</s>"
    return kind(
        vocab=vocabulary,
        merges=merges,
        model_max_length=max_length,
        pad_token=padding,
        add_bos_token=True,
        add_eos_token=is_gemma,
    )


@functools.cache
def _blank_marked_bpe(special: tuple[str, ...]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=True)
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=list(special), show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return _sorted_vocabulary(tokenizer), _merges(tokenizer)


def _byte_level_with_specials() -> tokenizers.Tokenizer:
    """As ModernBERT's: everything stands in tokenizer.json, and a mask takes the blank before it along."""
    names = list(_BRACKETED.values())
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=names, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_special_tokens([tokenizers.AddedToken("[MASK]", lstrip=True, normalized=False)])
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    return tokenizer


_BRACKETED = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad", "mask")}


def _merges(tokenizer: tokenizers.Tokenizer) -> list[tuple[str, str]]:
    pairs = json.loads(tokenizer.to_str())["model"]["merges"]
    return [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in pairs]


@functools.cache
def _unigram(special: tuple[str, ...]) -> list[tuple[str, float]]:
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    trainer = trainers.UnigramTrainer(
        vocab_size=500,
        special_tokens=list(special),
        unk_token=next(token for token in special if "unk" in token.lower()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return [(piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]


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
