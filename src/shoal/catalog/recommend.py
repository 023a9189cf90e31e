"""Which known models fit a wish, and why. Narrows by stated facts only: no score, no benchmark, no guess.

Knows nothing of terminals. What an entry does not state is answered `unknown`, never yes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, get_args

import msgspec

from shoal.catalog.entries import Entry, EntryOperation, Output
from shoal.catalog.families import FAMILIES
from shoal.types import Operation

__all__ = ["SERVED_OUTPUTS", "Answer", "Row", "Wish", "allows_commercial_use", "memory_bytes", "obstacle", "recommend"]

Precision = Literal["float32", "bfloat16"]

SERVED_OUTPUTS: tuple[Output, ...] = ("dense", "sparse")
"""The outputs of embedding that a worker gives."""

_BYTES: dict[Precision, int] = {"float32": 4, "bfloat16": 2}
_FREE = frozenset(("Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "CC0-1.0", "CC-BY-4.0", "AFL-3.0"))


class Wish(msgspec.Struct, frozen=True):
    """What a model must do; empty fields ask nothing.

    Attributes:
        operation, output, purpose: as in `Entry`.
        languages: ISO 639 codes that it must all read; `de-CH` counts as `de`.
        licence: an SPDX id, or `commercial`.
        max_memory_bytes: what its weights may take at `precision`.
        min_length: tokens that a text may have.
    """

    operation: EntryOperation | None = None
    output: Output | None = None
    purpose: str = ""
    languages: tuple[str, ...] = ()
    licence: str = ""
    max_memory_bytes: int = 0
    min_length: int = 0
    precision: Precision = "float32"


_NO_WISH = Wish()


class Answer(msgspec.Struct, frozen=True):
    """What an entry says to one part of the wish; `reason` is a clause for readers."""

    asked: str
    is_met: bool | None
    reason: str


class Row(msgspec.Struct, frozen=True):
    """One entry before the wish.

    Attributes:
        answers: one for each part of the wish.
        memory_bytes: of its weights at the wish's precision; None where the size is not known.
        obstacle: why this installation does not serve it yet; "" if it does.
    """

    entry: Entry
    answers: tuple[Answer, ...]
    memory_bytes: int | None
    obstacle: str

    def fits(self, *, takes_unknown: bool = False) -> bool:
        """Whether no part of the wish speaks against it; `takes_unknown`: unknown facts do not."""
        return all(answer.is_met or (takes_unknown and answer.is_met is None) for answer in self.answers)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Parts of the wish that the entry says nothing about, if nothing else speaks against it."""
        return (
            tuple(answer.asked for answer in self.answers if not answer.is_met) if self.fits(takes_unknown=True) else ()
        )


def recommend(known: Iterable[Entry], wish: Wish) -> list[Row]:
    """A row for every entry, small ones first; those of unknown size last."""
    rows = [
        Row(entry, tuple(_answers(entry, wish)), memory_bytes(entry, wish.precision), obstacle(entry, wish))
        for entry in known
    ]
    return sorted(rows, key=lambda row: (row.memory_bytes is None, row.memory_bytes or 0, row.entry.id.lower()))


def memory_bytes(entry: Entry, precision: Precision) -> int | None:
    """Bytes of its weights in memory: parameters times bytes each, else their size as stored; None if unknown."""
    if entry.num_parameters:
        return entry.num_parameters * _BYTES[precision]
    return entry.size_mib * 2**20 or None


def allows_commercial_use(licence: str) -> bool | None:
    """Whether a licence allows it as a whole; None where that takes reading (`LicenseRef-...`) or none is stated."""
    if licence in _FREE or licence.startswith("OpenMDW-"):
        return True
    return False if "-NC-" in licence else None


def obstacle(entry: Entry, wish: Wish = _NO_WISH) -> str:
    """Why this installation does not serve it for that wish, as far as its entry tells; "" if nothing is in the way."""
    operations = [wish.operation] if wish.operation in entry.operations else entry.operations
    outputs = [wish.output] if wish.output in entry.outputs else entry.outputs
    if not set(operations) & set(get_args(Operation)):
        return f"{operations[0]} is not served yet"
    if outputs and not set(outputs) & set(SERVED_OUTPUTS):
        return f"{outputs[0]} output is not served yet"
    if entry.needs_own_code:
        return "needs code from its repository, which is not run"
    if not entry.model_type:
        return "its architecture is not stated: try it"
    is_served = any(entry.model_type in family.model_types for family in FAMILIES)
    return "" if is_served else f"no family for {entry.model_type} yet"


def _answers(entry: Entry, wish: Wish) -> Iterable[Answer]:
    for asked, is_asked, ask in _QUESTIONS:
        if is_asked(wish):
            yield Answer(asked, *ask(entry, wish))


def _operation(entry: Entry, wish: Wish) -> tuple[bool | None, str]:
    return wish.operation in entry.operations, _joined(entry.operations)


def _output(entry: Entry, wish: Wish) -> tuple[bool | None, str]:
    return wish.output in entry.outputs, f"{_joined(entry.outputs)} output" if entry.outputs else "no vectors"


def _purpose(entry: Entry, wish: Wish) -> tuple[bool | None, str]:
    return wish.purpose == entry.purpose, entry.purpose or "no labels of its own"


def _language(entry: Entry, wish: Wish) -> tuple[bool | None, str]:
    if not entry.languages:
        return None, "languages unknown"
    stated = entry.languages.split()
    asked = {language.lower().replace("_", "-").split("-")[0] for language in wish.languages}
    count = "" if len(stated) == 1 else f", one of {len(stated)} languages" if len(asked) == 1 else f" of {len(stated)}"
    if missing := sorted(asked - set(stated)):
        return False, f"does not state {_joined(missing)}"
    return True, f"reads {_joined(sorted(asked))}{count}"


def _licence(entry: Entry, wish: Wish) -> tuple[bool | None, str]:
    if not entry.licence:
        return None, "licence unknown"
    if wish.licence.lower() != "commercial":
        return wish.licence.lower() == entry.licence.lower(), entry.licence
    verdict = allows_commercial_use(entry.licence)
    return verdict, f"{entry.licence}: to be read before commercial use" if verdict is None else entry.licence


def _memory(entry: Entry, wish: Wish) -> tuple[bool | None, str]:
    size = memory_bytes(entry, wish.precision)
    if size is None:
        return None, "size unknown"
    how = f"{entry.num_parameters / 1e6:,.0f} M parameters in {wish.precision}" if entry.num_parameters else "as stored"
    return size <= wish.max_memory_bytes, f"{size / 1e6:,.0f} MB of weights ({how})"


def _length(entry: Entry, wish: Wish) -> tuple[bool | None, str]:
    if not entry.max_length:
        return None, "longest text unknown"
    return entry.max_length >= wish.min_length, f"texts of {entry.max_length} tokens"


def _joined(words: Sequence[str]) -> str:
    return ", ".join(words)


_QUESTIONS: tuple[
    tuple[str, Callable[[Wish], object], Callable[[Entry, Wish], tuple[bool | None, str]]],
    ...,
] = (
    ("operation", lambda wish: wish.operation, _operation),
    ("output", lambda wish: wish.output, _output),
    ("purpose", lambda wish: wish.purpose, _purpose),
    ("language", lambda wish: wish.languages, _language),
    ("memory", lambda wish: wish.max_memory_bytes, _memory),
    ("length", lambda wish: wish.min_length, _length),
    ("licence", lambda wish: wish.licence, _licence),
)
