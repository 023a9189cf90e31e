"""A task that eight-bit formats must not spoil: nDCG@10 on documents, queries and what is relevant to them."""

from __future__ import annotations

import hashlib

import msgspec

from shoal.bench.neighbours import Collection, ndcg, top_k
from shoal.tuner.serving import Serving

__all__ = ["Retrieval", "shortened"]

AT = 10


class Retrieval:
    """Embeds a collection with a server, and says how well its queries find what is relevant."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    @property
    def digest(self) -> str:
        """Of the collection, as it is embedded."""
        return hashlib.sha256(msgspec.json.encode(self._collection)).hexdigest()[:16]

    def __call__(self, serving: Serving) -> float:
        """nDCG@10.

        Raises:
            TrialFailed: the server does not answer with vectors.
        """
        documents = serving.vectors(self._collection.documents, "document")
        queries = serving.vectors(self._collection.queries, "query")
        return ndcg(top_k(queries, documents, AT), self._collection.gains)


def shortened(collection: Collection, num_documents: int) -> Collection:
    """The first queries with all that is relevant to them, and other documents up to the number, in their order.

    Every trial of another number format embeds it, so a large collection would eat the budget.
    """
    if len(collection.documents) <= num_documents:
        return collection
    kept: set[int] = set()
    queries: list[int] = []
    for query, gains in collection.gains.items():
        if len(kept | gains.keys()) > num_documents:
            break
        kept |= gains.keys()
        queries.append(query)
    others = (place for place in range(len(collection.documents)) if place not in kept)
    places = sorted(kept | {place for place, _ in zip(others, range(num_documents - len(kept)), strict=False)})
    place_of = {old: new for new, old in enumerate(places)}
    return Collection(
        [collection.documents[place] for place in places],
        [collection.queries[query] for query in queries],
        {
            number: {place_of[place]: gain for place, gain in collection.gains[query].items()}
            for number, query in enumerate(queries)
        },
    )
