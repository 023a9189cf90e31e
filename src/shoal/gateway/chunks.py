"""Cuts a request into chunks: pure, no I/O."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["cut", "estimated_tokens"]


def estimated_tokens(size_bytes: int, max_length: int) -> int:
    """What an item may cost: a quarter of its bytes, never more than the model takes. The worker counts truly."""
    return min(size_bytes // 4 + 1, max_length)


def cut(
    sizes_bytes: Sequence[int],
    *,
    quantum_tokens: int,
    max_length: int,
    max_chunk_bytes: int,
    max_chunk_items: int,
    shared_bytes: int = 0,
    runs_per_item: int = 1,
) -> list[tuple[int, int, int]]:
    """Chunks as (start, stop, estimated tokens), in order, each about one quantum and at least one item.

    Args:
        sizes_bytes: size of each item.
        quantum_tokens: what a worker runs at once.
        max_length: tokens of the longest item that the model takes.
        max_chunk_bytes: what one message may hold; an item beyond it gets a chunk of its own.
        max_chunk_items: as many replies fit one message.
        shared_bytes: size of what is put to each item, as a query is.
        runs_per_item: how often each item is run, as for each label of the caller's own.
    """
    chunks = []
    start = tokens = chunk_bytes = 0
    for index, size_bytes in enumerate(sizes_bytes):
        cost = runs_per_item * estimated_tokens(size_bytes + shared_bytes, max_length)
        is_full = (
            tokens + cost > quantum_tokens
            or chunk_bytes + size_bytes + 1 > max_chunk_bytes
            or index - start >= max_chunk_items
        )
        if is_full and index > start:
            chunks.append((start, index, tokens))
            start, tokens, chunk_bytes = index, 0, 0
        tokens += cost
        chunk_bytes += size_bytes + 1
    chunks.append((start, len(sizes_bytes), tokens))
    return chunks
