"""What extracting returns. The wire's structs; no HTTP."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Self

from shoal.client.result import mixed
from shoal.types import Entity, ExtractReply

__all__ = ["ExtractResult"]


@dataclasses.dataclass(frozen=True, repr=False)
class ExtractResult:
    """The entities of some texts, in the order of the texts.

    Attributes:
        model: the model that answered.
        texts: each text's entities in their order: `label`, `text`, `score`, and `start` and `end` in code points, so
            that `text[start:end]` of the text that was sent is the entity.
        num_tokens: tokens really run for each text; those that two windows share count twice.
        truncated: whether each text was cut.
        times, request_ids: as in `EmbedResult`.
    """

    model: str
    texts: list[list[Entity]]
    num_tokens: list[int]
    truncated: list[bool]
    times: dict[str, float]
    request_ids: list[str]

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        num_entities = sum(map(len, self.texts))
        return f"<ExtractResult of {self.model}: {num_entities} entities in {len(self)} texts>"

    @classmethod
    def from_replies(cls, replies: Sequence[ExtractReply]) -> Self:
        """One result from the replies to one or more requests, in order.

        Raises:
            InternalError: the replies do not fit together.
        """
        if len({reply.model for reply in replies}) > 1:
            raise mixed()
        return cls(
            model=replies[0].model,
            texts=[entities for reply in replies for entities in reply.results],
            num_tokens=[number for reply in replies for number in reply.num_tokens],
            truncated=[flag for reply in replies for flag in reply.truncated],
            times={stage: sum(reply.times.get(stage, 0.0) for reply in replies) for stage in replies[0].times},
            request_ids=[reply.request_id for reply in replies],
        )
