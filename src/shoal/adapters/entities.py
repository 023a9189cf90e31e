"""Labels of tokens to entities, as transformers' TokenClassificationPipeline makes them. Pure NumPy.

Tokens become units (themselves, or words, by the aggregation), and adjacent units of one label an entity.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.adapters.base import Passage
from shoal.types import Aggregation, Entity

__all__ = ["find_entities"]

Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]


class _Units(msgspec.Struct):
    """Tokens or words: what each is, how surely, and where. int64, float32, int32, int32 [num_units]."""

    labels: Places
    scores: Floats
    starts: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int32]


def find_entities(
    passage: Passage, probabilities: Floats, labels: tuple[str, ...], aggregation: Aggregation
) -> list[Entity]:
    """What stands in a text.

    Args:
        probabilities: float32 [num_tokens, num_labels].
        labels: names; `B-` and `I-` in front mark the beginning and the inside of an entity, `O` is nothing.
    """
    if not len(probabilities):
        return []
    if aggregation in _WORDS:
        units = _words(passage, probabilities, np.flatnonzero(_starts_word(passage)), _WORDS[aggregation])
    else:
        best = probabilities.argmax(axis=1)
        scores = probabilities[np.arange(len(best)), best]
        units = _Units(best, scores, passage.starts, passage.ends)
    firsts, names = np.arange(len(units.labels)), labels
    if aggregation != "none":
        firsts, names = _firsts(units.labels, labels), tuple(label.split("-", 1)[-1] for label in labels)
    lasts = np.append(firsts[1:], len(units.labels)) - 1
    scores = np.add.reduceat(units.scores, firsts) / (lasts - firsts + 1)
    columns = (units.labels[firsts], scores, units.starts[firsts], units.ends[lasts])
    return [
        _entity(passage.text, names[label], score, start, end)
        for label, score, start, end in zip(*(column.tolist() for column in columns), strict=True)
        if names[label] != "O"
    ]


def _starts_word(passage: Passage) -> npt.NDArray[np.bool_]:
    """Whether each token is the first of its word; a text's first token is in any case."""
    starts = ~passage.continues_word
    starts[0] = True
    return starts


def _words(passage: Passage, probabilities: Floats, firsts: Places, choose: Callable[..., Floats]) -> _Units:
    chosen = choose(probabilities, firsts)
    best = chosen.argmax(axis=1)
    ends = passage.ends[np.append(firsts[1:], len(probabilities)) - 1]
    return _Units(best, chosen[np.arange(len(best)), best], passage.starts[firsts], ends)


def _first(probabilities: Floats, firsts: Places) -> Floats:
    return probabilities[firsts]


def _average(probabilities: Floats, firsts: Places) -> Floats:
    counts = np.diff(firsts, append=len(probabilities))
    return (np.add.reduceat(probabilities, firsts) / counts[:, None]).astype(np.float32)


def _surest(probabilities: Floats, firsts: Places) -> Floats:
    """Each word's token with the highest probability of all; the first of equals."""
    sureness = probabilities.max(axis=1)
    word = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(probabilities)))
    is_surest = np.flatnonzero(sureness == np.maximum.reduceat(sureness, firsts)[word])
    return probabilities[is_surest[np.unique(word[is_surest], return_index=True)[1]]]


_WORDS: dict[Aggregation, Callable[[Floats, Places], Floats]] = {
    "first": _first,
    "average": _average,
    "max": _surest,
}


def _firsts(units: Places, labels: tuple[str, ...]) -> Places:
    """Where each entity begins, adjacent units of one label being one: a unit with `B-` begins a new one."""
    tags = [label[2:] if label[:2] in ("B-", "I-") else label for label in labels]
    tag_ids = np.array([tags.index(tag) for tag in tags])[units]
    begins = np.array([label.startswith("B-") for label in labels])[units]
    return np.flatnonzero(np.append(True, begins[1:] | (tag_ids[1:] != tag_ids[:-1])))


def _entity(text: str, label: str, score: float, start: int, end: int) -> Entity:
    """Blanks that the tokenizer counts to a token are left out."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return Entity(label, text[start:end], score, start, end)
