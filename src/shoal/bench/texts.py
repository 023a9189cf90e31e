"""Texts to send: the user's own lines, or runs of words of a given length from them or from a few built-in words."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import msgspec

from shoal.bench.lines import read_lines
from shoal.errors import InvalidRequest

__all__ = ["MIXES", "Mix", "read_named", "read_texts", "runs_of_words"]


class Mix(NamedTuple):
    """How many words a text has, evenly between two bounds, and what that is in words."""

    least: int
    most: int
    meaning: str


MIXES = {
    "short": Mix(10, 14, "about 16 tokens"),
    "medium": Mix(90, 126, "about 128 tokens"),
    "mixed": Mix(5, 300, "5 to 300 words"),
}

_WORDS = (
    "the of and to in is that it was for on are as with his they at be this from have or by one had not but what all "
    "were when we there can an your which their said if do will each about how up out them then she many some so "
    "these would other into has more her two like him see time could no make than first been its who now people my "
    "made over did down only way find use may water long little very after words called just where most know get "
    "through back much before go good new write our used me man too any day same right look think also around another "
    "came come work three word must because does part even place well such here take why things help put years "
    "different away again off went old number great tell men say small every found still between name should home big "
    "give air line set own under read last never us left end along while might next sound below saw something thought "
    "both few those always looked show large often together asked house world going want school important until form "
    "food keep children feet land side without boy once animals life enough took sometimes four head above kind began "
    "almost live page got earth need far hand high year mother light parts country father let night following picture "
    "being study second eyes "
)


def read_texts(path: Path) -> list[str]:
    """The lines of a file that are not blank, in order; of a .jsonl each `text`, after its `title` if it has one.

    Raises:
        InvalidRequest: there is none, or a line cannot be read, or one of a .jsonl has no text.
    """
    return [text for _, text in read_named(path)]


def read_named(path: Path) -> list[tuple[str, str]]:
    """As `read_texts`, each with its `_id`, or its number where it has none."""
    lines = [(number, line) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    is_json = ".jsonl" in path.suffixes
    texts = [_named(path, number, line) if is_json else (str(number), line.strip()) for number, line in lines]
    if not texts:
        raise InvalidRequest(f"{path} holds no texts.", hint="One a line.")
    return texts


def _named(path: Path, number: int, line: str) -> tuple[str, str]:
    try:
        row = msgspec.json.decode(line)
        text = " ".join(part for part in (row.get("title"), row["text"]) if part).strip()
        return str(row.get("_id", number)), text
    except (msgspec.MsgspecError, KeyError, AttributeError, TypeError):
        raise InvalidRequest(f'Line {number} of {path} is no object with "text".') from None


def runs_of_words(mix: Mix, num_texts: int, seed: int, source: list[str] | None = None) -> list[str]:
    """Texts of a mix, the same for the same seed: words in the order of `source`, or built-in ones at random."""
    chooser = random.Random(seed)  # noqa: S311
    words = " ".join(source).split() if source else chooser.choices(_WORDS.split(), k=20_000)
    if len(words) < mix.most:
        words *= -(-mix.most // len(words))
    texts = []
    for _ in range(num_texts):
        num_words = chooser.randint(mix.least, mix.most)
        start = chooser.randrange(len(words) - num_words + 1)
        texts.append(" ".join(words[start : start + num_words]))
    return texts
