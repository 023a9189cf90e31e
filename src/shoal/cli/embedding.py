"""The work of `shoal embed`: texts in, vectors out, several requests at once, in bounded memory.

It knows nothing of options, files or progress bars.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from shoal.cli.sinks import Sink
from shoal.cli.texts import Line, Texts
from shoal.client import Client, EmbedResult
from shoal.client.split import size_bytes, split
from shoal.client.tasks import Tasks
from shoal.client.wire import place_of
from shoal.errors import InvalidRequest, ShoalError

__all__ = ["Outcome", "Tally", "embed_texts", "located"]

_BATCH_BYTES = 1024 * 1024


class Outcome(NamedTuple):
    """What became of one batch: its vectors, and the lines left out with the reason."""

    lines: Sequence[Line]
    result: EmbedResult | None
    rejected: list[tuple[Line, ShoalError]]


@dataclasses.dataclass
class Tally:
    """What was done so far."""

    num_texts: int = 0
    num_truncated: int = 0
    num_rejected: int = 0
    dimensions: int = 0

    def add(self, outcome: Outcome) -> None:
        self.num_texts += len(outcome.lines)
        self.num_rejected += len(outcome.rejected)
        if outcome.result is not None:
            self.num_truncated += sum(outcome.result.truncated)
            self.dimensions = outcome.result.dimensions


def embed_texts(
    texts: Texts,
    sink: Sink,
    client: Client,
    fields: dict[str, Any],
    tally: Tally,
    *,
    batch_items: int,
    concurrency: int,
    is_kept_going: bool,
    on_outcome: Callable[[Outcome], None],
) -> None:
    """Embed all texts and write them in order; `tally` says how far it came even if this raises.

    Args:
        fields: further arguments of `Client.embed`.
        is_kept_going: leave out a text that is refused instead of ending with it.
        on_outcome: called after each batch is written.

    Raises:
        ShoalError: of the first text, in order, that is refused; its message names the line.
    """
    tasks = Tasks(concurrency)
    batches = split(texts, batch_items, _BATCH_BYTES, lambda line: size_bytes(line.text))
    calls = (partial(_embed, batch, texts, client, fields, is_kept_going) for batch in batches)
    for outcome in tasks.in_order(calls):
        if outcome.result is not None:
            sink.write(outcome.lines, outcome.result)
        tally.add(outcome)
        on_outcome(outcome)
    if not tally.num_texts and not tally.num_rejected:
        raise InvalidRequest("There is no text to embed: the input is empty.")


def _embed(batch: list[Line], texts: Texts, client: Client, fields: dict[str, Any], is_kept_going: bool) -> Outcome:
    good = [line for line in batch if line.error is None]
    rejected: list[tuple[Line, ShoalError]] = [
        (line, located(line.error, texts.place(line.number))) for line in batch if line.error is not None
    ]
    while True:
        if rejected and not is_kept_going:
            raise rejected[0][1]
        if not good:
            return Outcome([], None, rejected)
        try:
            return Outcome(good, client.embed([line.text for line in good], **fields), rejected)
        except ShoalError as error:
            place = place_of(error)
            if place is None:
                raise
            line = good.pop(place)
            rejected.append((line, located(error, texts.place(line.number))))


def located(error: ShoalError, place: str) -> ShoalError:
    """The same error, its message naming the place in the caller's texts."""
    if error.param and error.param in error.message:
        message = error.message.replace(error.param, place)
    else:
        message = f"{place} {error.message}"
    return type(error)(message, param=error.param, hint=error.hint)
