"""What comparing texts with one returns. NumPy and the wire's structs; no HTTP."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from shoal.client.result import mixed
from shoal.types import SimilarityFunction, SimilarityReply

__all__ = ["SimilarityResult"]


@dataclasses.dataclass(frozen=True, repr=False)
class SimilarityResult:
    """How alike texts are to one, in the order of the texts.

    Attributes:
        model: the model that answered.
        function: how it compares; distances are negative.
        scores: float32 [n], more is more alike.
        num_tokens, truncated: of each text.
        times, request_ids: as in `EmbedResult`.
    """

    model: str
    function: SimilarityFunction
    scores: npt.NDArray[np.float32]
    num_tokens: list[int]
    truncated: list[bool]
    times: dict[str, float]
    request_ids: list[str]

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        return f"<SimilarityResult of {self.model}: {len(self)} texts, {self.function}, {sum(self.num_tokens)} tokens>"

    @classmethod
    def from_replies(cls, replies: Sequence[SimilarityReply]) -> Self:
        """One result from the replies to one or more requests, in order.

        Raises:
            InternalError: the replies do not fit together.
        """
        first = replies[0]
        if len({(reply.model, reply.function) for reply in replies}) > 1:
            raise mixed()
        return cls(
            model=first.model,
            function=first.function,
            scores=np.array([score for reply in replies for score in reply.scores], np.float32),
            num_tokens=[number for reply in replies for number in reply.num_tokens],
            truncated=[flag for reply in replies for flag in reply.truncated],
            times={stage: sum(reply.times.get(stage, 0.0) for reply in replies) for stage in first.times},
            request_ids=[reply.request_id for reply in replies],
        )
