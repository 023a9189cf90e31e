"""A loaded model: cuts a ragged batch into forwards, runs them, and has rows put back in the order of the items."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import torch

from shoal.errors import InvalidRequest
from shoal.runtimes.base import Arrays, Features, SessionFacts
from shoal.runtimes.torch.copies import Fetches, Tensors, upload
from shoal.runtimes.torch.encoder import Encoder
from shoal.runtimes.torch.graphs import Graphs
from shoal.runtimes.torch.layout import Part, fill, pack, pad
from shoal.runtimes.torch.outputs import Head

__all__ = ["TorchSession"]

_OVERHEAD_TOKENS = {"cuda": 1024, "cpu": 32}
"""What a further forward costs, in tokens of padding that it may save."""


class TorchSession:
    """A model on a device.

    Args:
        encoder: in the layout that it is to run in.
        heads: what it gives.
        graphs: for small batches, None without.
        max_length: tokens that a text may have.
        includes_prompt: whether pooling counts a prompt's tokens.
        forward_tokens: most tokens in one forward.
        num_threads: of the CPU, 0 = torch's own choice.
        facts: for those who ask.
    """

    def __init__(
        self,
        encoder: Encoder,
        heads: Sequence[Head],
        graphs: Graphs | None,
        *,
        max_length: int,
        includes_prompt: bool,
        forward_tokens: int,
        num_threads: int,
        facts: SessionFacts,
    ) -> None:
        self._encoder = encoder
        self._heads = heads
        self._graphs = graphs
        self._max_length = max_length
        self._vocabulary_size = int(encoder.model.get_input_embeddings().num_embeddings)
        self._includes_prompt = includes_prompt
        self._forward_tokens = forward_tokens
        self._num_threads = num_threads
        self._facts = facts
        self.device_tokens = 0
        """Of the last run, padding included."""

    @property
    def facts(self) -> SessionFacts:
        return self._facts

    @torch.inference_mode()
    def run(self, features: Features) -> Arrays:
        """See `base.Session.run`.

        Raises:
            InvalidRequest: a text is longer than the model takes, or an id is outside its vocabulary.
        """
        self._check(features)
        if self._num_threads and torch.get_num_threads() != self._num_threads:
            torch.set_num_threads(self._num_threads)  # a thread that loads and one that runs each have their own
        if self._includes_prompt:
            features = msgspec.structs.replace(features, pool_from=np.zeros_like(features.lengths))
        try:
            return self._outputs(features)
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            message = f"{features.num_tokens} tokens do not fit on {self._encoder.device}"
        torch.cuda.empty_cache()  # outside of the handler, whose traceback holds what was allocated
        raise MemoryError(message)

    def close(self) -> None:
        """Free the model's memory."""
        del self._encoder, self._heads, self._graphs
        torch.cuda.empty_cache()

    def _outputs(self, features: Features) -> Arrays:
        """Forwards are started one after another, copies go beside them; the only wait is for the last one."""
        fetches = Fetches(self._encoder.device)
        collectors = [head.collector(features, fetches) for head in self._heads]
        parts = self._parts(features)
        padded = [len(part.items) * part.width for part in parts]
        self.device_tokens = sum(padded) or features.num_tokens
        for part in parts:
            computed = self._forward(features, part)
            for head, collector in zip(self._heads, collectors, strict=True):
                collector.take(computed[head.name], part.items, features.lengths[part.items])
        fetches.wait()
        return {name: array for collector in collectors for name, array in collector.arrays().items()}

    def _forward(self, features: Features, part: Part) -> Tensors:
        """What each head computes of a part."""
        encoder = self._encoder
        arrays = fill(features, part, encoder.numbering, encoder.padding_id)
        replayed = self._graphs.run(arrays) if self._graphs else None
        if replayed is not None:
            return replayed
        tensors = upload(arrays, encoder.device)
        states = encoder.states(tensors, part.width, int(features.lengths[part.items[0]]))
        return {head.name: head.compute(states, tensors) for head in self._heads}

    def _parts(self, features: Features) -> list[Part]:
        if self._encoder.is_packed:
            return pack(features.lengths, self._forward_tokens)
        return pad(features.lengths, self._forward_tokens, _OVERHEAD_TOKENS[self._encoder.device.type])

    def _check(self, features: Features) -> None:
        if not features.num_items:
            return
        longest = int(features.lengths.max())
        lowest, highest = int(features.token_ids.min()), int(features.token_ids.max())
        if longest > self._max_length:
            raise InvalidRequest(f"A text has {longest} tokens; the model takes {self._max_length}.")
        if lowest < 0 or highest >= self._vocabulary_size:
            wrong = lowest if lowest < 0 else highest
            raise InvalidRequest(f"Token id {wrong} is outside the vocabulary of {self._vocabulary_size}.")


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Torch has a class for want of CUDA memory; of main memory only its allocator's name tells."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)
