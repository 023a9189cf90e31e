"""What tokenising returns. The wire's structs; no HTTP."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Self

from shoal.client.result import mixed
from shoal.types import TextTokens, TokenizeReply

__all__ = ["TokenizeResult"]


@dataclasses.dataclass(frozen=True, repr=False)
class TokenizeResult:
    """The tokens of some texts, in the order of the texts.

    Attributes:
        model: the model whose tokenizer it is.
        max_length: tokens that the model takes, special ones included.
        texts: of each text its `ids`, their names in `tokens`, their `offsets` in code points of the text, and whether
            each is `special`: put around the text by the model.
        num_tokens: of each text.
        request_ids: as in `EmbedResult`.
    """

    model: str
    max_length: int
    texts: list[TextTokens]
    num_tokens: list[int]
    request_ids: list[str]

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"<TokenizeResult of {self.model}: {len(self)} texts, {sum(self.num_tokens)} tokens>"

    @classmethod
    def from_replies(cls, replies: Sequence[TokenizeReply]) -> Self:
        """One result from the replies to one or more requests, in order.

        Raises:
            InternalError: the replies do not fit together.
        """
        if len({reply.model for reply in replies}) > 1:
            raise mixed()
        return cls(
            model=replies[0].model,
            max_length=replies[0].max_length,
            texts=[text for reply in replies for text in reply.results],
            num_tokens=[number for reply in replies for number in reply.num_tokens],
            request_ids=[reply.request_id for reply in replies],
        )
