"""Names that look alike, for the hint beside "unknown model"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["near_names"]


def near_names(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Known names that a slip of the hand could turn into `name`, nearest first.

    The part before the last slash counts little: people leave the organisation out, or get it wrong.
    """
    wanted = _key(name)
    scored = sorted(
        ((max(_likeness(wanted, _key(other)), _likeness(name.lower(), other.lower())), other) for other in set(known)),
        key=lambda pair: (-pair[0], pair[1]),
    )
    return [other for likeness, other in scored if likeness >= 0.6][:limit]


def _key(name: str) -> str:
    return name.rsplit("/", 1)[-1].lower().replace("_", "-")


def _likeness(left: str, right: str) -> float:
    if left and right and (left in right or right in left):
        return 0.6 + 0.4 * min(len(left), len(right)) / max(len(left), len(right))
    return difflib.SequenceMatcher(None, left, right).ratio()
