"""Which text lies where in a forward. Pure: NumPy only, no torch, no device.

Packed: texts one after another, no padding at all. Padded: rows of one width, for models that cannot tell texts apart
in a row. Either way texts are sorted by length, so that a packed forward has texts of one length side by side (see
`attention`), and a padded one has rows of nearly one length.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.runtimes.base import Features

__all__ = ["Ints", "Numbering", "Part", "fill", "pack", "pad"]

Ints = npt.NDArray[np.int32]

Numbering = Literal["from_zero", "after_padding_id"]
"""How a model numbers positions. `after_padding_id` is fairseq's: from padding_id + 1, tokens that are literal padding
not counted and at padding_id."""


class Part(NamedTuple):
    """What one forward runs.

    Attributes:
        items: int64 [n], places in the batch, longest text first.
        width: tokens a row, 0 if packed.
    """

    items: npt.NDArray[np.int64]
    width: int = 0


def pack(lengths: Ints, forward_tokens: int) -> list[Part]:
    """Texts side by side, at most `forward_tokens` in a forward (or one text that is longer)."""
    order = np.argsort(-lengths, kind="stable")
    return [Part(order[first:end]) for first, end in _cuts(lengths[order], forward_tokens)]


def _cuts(costs: npt.NDArray[np.int_] | Ints, limit: int) -> list[tuple[int, int]]:
    """Stretches whose costs come to `limit` at most, each at least one item."""
    stretches, first, total = [], 0, 0
    for place, cost in enumerate(costs.tolist()):
        if place > first and total + cost > limit:
            stretches.append((first, place))
            first, total = place, 0
        total += cost
    return [*stretches, (first, len(costs))] if len(costs) else []


def pad(lengths: Ints, forward_tokens: int, overhead_tokens: int) -> list[Part]:
    """Rows of one width: the fewest tokens, padding included, if a further forward costs as much as `overhead_tokens`.

    Widths are rounded up by at most a sixteenth, so that there are few of them.
    """
    order = np.argsort(-lengths, kind="stable")
    widths = _rounded(lengths[order])
    parts = []
    for first, end in _groups(widths, overhead_tokens):
        width = int(widths[first])
        rows = max(1, forward_tokens // width)
        parts += [Part(order[start : min(start + rows, end)], width) for start in range(first, end, rows)]
    return parts


def _rounded(lengths: Ints) -> npt.NDArray[np.int64]:
    steps = np.maximum(8, 2 ** np.maximum(0, np.ceil(np.log2(np.maximum(1, lengths))).astype(np.int64) - 4))
    rounded: npt.NDArray[np.int64] = -(-lengths // steps) * steps
    return rounded


def _groups(widths: npt.NDArray[np.int64], overhead: int) -> list[tuple[int, int]]:
    """Cheapest partition of descending widths into stretches, a stretch costing its first width times its items."""
    firsts = np.flatnonzero(np.diff(widths, prepend=-1))
    ends = np.append(firsts[1:], len(widths))
    best = np.zeros(len(firsts) + 1)
    cut = np.zeros(len(firsts) + 1, np.int64)
    for last in range(len(firsts)):
        costs = best[: last + 1] + widths[firsts[: last + 1]] * (ends[last] - firsts[: last + 1]) + overhead
        cut[last + 1] = int(costs.argmin())
        best[last + 1] = costs.min()
    groups, last = [], len(firsts)
    while last:
        groups.append((int(firsts[cut[last]]), int(ends[last - 1])))
        last = int(cut[last])
    return groups[::-1]


def fill(features: Features, part: Part, numbering: Numbering, padding_id: int) -> dict[str, Ints]:
    """Everything that a forward and the pooling after it want, int32.

    Returns:
        token_ids, token_type_ids (if given), is_key (if padded): [total], or rows one after another, [n * width];
            a key is a token that is looked at.
        positions: [total], as the model numbers them.
        index: [total], a token's place in its text.
        is_counted: [total], 1 where pooling counts the token.
        starts: [n + 1], where each text begins and the last one ends.
        pooled_from: [n], the first token that counts, or the text's very first if none does.
        items: [n], places in the batch.
        sources: [total], where a padded part's tokens lie in its rows.
        key_starts, key_places (packed, if not all tokens are keys): where a text's keys begin among all keys [n + 1],
            and where each key lies among all tokens.
    """
    lengths = features.lengths[part.items].astype(np.int64)
    begins = np.cumsum(lengths) - lengths
    index = np.arange(int(lengths.sum())) - np.repeat(begins, lengths)
    sources = np.repeat(np.cumsum(features.lengths, dtype=np.int64)[part.items] - lengths, lengths) + index
    skipped = features.pool_from[part.items]
    token_ids = features.token_ids[sources]
    arrays: dict[str, npt.NDArray[Any]] = {
        "token_ids": token_ids,
        "positions": index if numbering == "from_zero" else _counted(token_ids, lengths, padding_id),
        "index": index,
        "is_counted": index >= np.repeat(skipped, lengths),
        "starts": np.append(begins, len(index)),
        "pooled_from": begins + np.where(skipped < lengths, skipped, 0),
        "items": part.items,
    }
    if features.token_type_ids is not None:
        arrays["token_type_ids"] = features.token_type_ids[sources]
    is_key = np.ones(len(index), np.bool_)
    if features.num_keys is not None:
        num_keys = features.num_keys[part.items].astype(np.int64)
        is_key = index < np.repeat(num_keys, lengths)
        if not part.width:
            arrays["key_starts"] = np.append(0, np.cumsum(num_keys))
            arrays["key_places"] = np.flatnonzero(is_key)
    if part.width:
        places = np.repeat(np.arange(len(lengths)) * part.width, lengths) + index
        size = len(lengths) * part.width
        arrays["sources"] = places
        arrays["is_key"] = is_key
        for name, padding in (("token_ids", padding_id), ("token_type_ids", 0), ("is_key", 0)):
            if name in arrays:
                arrays[name] = _spread(arrays[name], places, size, padding)
    return {name: array.astype(np.int32) for name, array in arrays.items()}


def _spread(values: npt.NDArray[Any], places: npt.NDArray[np.int64], size: int, padding: int) -> Ints:
    spread = np.full(size, padding, np.int32)
    spread[places] = values
    return spread


def _counted(token_ids: Ints, lengths: npt.NDArray[np.int64], padding_id: int) -> npt.NDArray[np.int64]:
    counts = token_ids != padding_id
    running = np.cumsum(counts)
    begins = np.cumsum(lengths) - lengths
    before = np.repeat(running[begins] - counts[begins], lengths)
    positions: npt.NDArray[np.int64] = (running - before) * counts + padding_id
    return positions
