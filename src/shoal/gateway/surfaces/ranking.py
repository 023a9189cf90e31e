"""What all surfaces that rank do with scores: sort, cut, and hand each document's own text back. Names no field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from shoal.errors import InvalidRequest
from shoal.gateway.ask import Answer
from shoal.gateway.formats import Format

__all__ = ["as_it_is", "as_object", "check_top_n", "ranked", "rows", "scores_of"]


def scores_of(answer: Answer) -> list[float]:
    """A score an item, in the request's order."""
    return [float(score) for score in memoryview(answer.body()).cast("f")]


def ranked(answer: Answer, top_n: int | None) -> list[tuple[int, float]]:
    """(place in the request, relevance) of the best documents, best first; equal ones in the request's order."""
    scores = scores_of(answer)
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    return [(index, scores[index]) for index in order[:top_n]]


def rows(
    answer: Answer,
    top_n: int | None = None,
    *,
    reply_format: Format = "json",
    score: str = "relevance_score",
    document: str = "document",
    shown: Callable[[msgspec.Raw | str], Any] | None = None,
) -> list[dict[str, Any]]:
    """The best documents as the reply holds them, best first.

    Args:
        score, document: what the surface calls them.
        shown: makes of a text what stands for its document; None leaves documents out.
    """
    best: list[dict[str, Any]] = [{"index": index, score: relevance} for index, relevance in ranked(answer, top_n)]
    if shown is not None:
        for row in best:
            row[document] = shown(answer.items.value(row["index"], reply_format))
    return best


def as_object(text: msgspec.Raw | str) -> dict[str, msgspec.Raw | str]:
    """A document as `{"text": ..}`."""
    return {"text": text}


def as_it_is(text: msgspec.Raw | str) -> msgspec.Raw | str:
    """A document as its text."""
    return text


def check_top_n(top_n: int | None, field: str) -> None:
    """Raises:
    InvalidRequest: less than one result is asked for.
    """
    if top_n is not None and top_n < 1:
        raise InvalidRequest(f"{field} is {top_n}; it must be at least 1.", param=field)
