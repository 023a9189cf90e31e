"""Labels of tokens to entities, as transformers' TokenClassificationPipeline makes them. Pure NumPy.

Tokens become units (themselves, or words, by the aggregation), and adjacent units of one label an entity.
"""

from __future__ import annotations

import itertools
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
        firsts = np.flatnonzero(_starts_word(passage))
        units = _words(passage, probabilities, firsts, _WORDS[aggregation])
    else:
        best = probabilities.argmax(axis=1)
        scores = probabilities[np.arange(len(best)), best]
        units = _Units(best, scores, passage.starts, passage.ends)
    if aggregation == "none":
        groups, names = [(place, place + 1) for place in range(len(units.labels))], labels
    else:
        groups, names = _groups(units.labels, labels), tuple(label.split("-", 1)[-1] for label in labels)
    found = [_entity(passage.text, names[units.labels[start]], units, start, end) for start, end in groups]
    return [entity for entity in found if entity.label != "O"]


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


def _groups(units: Places, labels: tuple[str, ...]) -> list[tuple[int, int]]:
    """Adjacent units of one label, as (start, end): one with `B-` begins a new entity."""
    tags = [label[2:] if label[:2] in ("B-", "I-") else label for label in labels]
    tag_ids = np.array([tags.index(tag) for tag in tags])[units]
    begins = np.array([label.startswith("B-") for label in labels])[units]
    is_new = begins[1:] | (tag_ids[1:] != tag_ids[:-1])
    bounds = [0, *(np.flatnonzero(is_new) + 1).tolist(), len(units)]
    return list(itertools.pairwise(bounds))


def _entity(text: str, label: str, units: _Units, start: int, end: int) -> Entity:
    """Blanks that the tokenizer counts to a token are left out."""
    first, last = int(units.starts[start]), int(units.ends[end - 1])
    while first < last and text[first].isspace():
        first += 1
    while first < last and text[last - 1].isspace():
        last -= 1
    return Entity(label, text[first:last], float(units.scores[start:end].mean()), first, last)
