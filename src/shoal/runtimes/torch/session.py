"""A loaded model: cuts a ragged batch into forwards, runs them, and puts the vectors back in the order of the items."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from shoal.errors import InvalidRequest
from shoal.runtimes.base import Arrays, Features, SessionFacts
from shoal.runtimes.torch.encoder import Encoder, Tensors, upload
from shoal.runtimes.torch.graphs import Graphs
from shoal.runtimes.torch.layout import Part, fill, pack, pad
from shoal.runtimes.torch.modules import Finish

__all__ = ["TorchSession"]

_OVERHEAD_TOKENS = {"cuda": 1024, "cpu": 32}
"""What a further forward costs, in tokens of padding that it may save."""


class TorchSession:
    """A model on a device.

    Args:
        encoder: in the layout that it is to run in.
        finish: what follows it.
        graphs: for small batches, None without.
        output: name of what `finish` gives.
        dimensions: numbers of it for each text.
        max_length: tokens that a text may have.
        includes_prompt: whether pooling counts a prompt's tokens.
        forward_tokens: most tokens in one forward.
        num_threads: of the CPU, 0 = torch's own choice.
        facts: for those who ask.
    """

    def __init__(
        self,
        encoder: Encoder,
        finish: Finish,
        graphs: Graphs | None,
        *,
        output: str,
        dimensions: int,
        max_length: int,
        includes_prompt: bool,
        forward_tokens: int,
        num_threads: int,
        facts: SessionFacts,
    ) -> None:
        self._encoder = encoder
        self._finish = finish
        self._graphs = graphs
        self._output = output
        self._dimensions = dimensions
        self._max_length = max_length
        self._vocabulary_size = int(encoder.model.get_input_embeddings().num_embeddings)
        self._includes_prompt = includes_prompt
        self._forward_tokens = forward_tokens
        self._num_threads = num_threads
        self._facts = facts

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
            features = Features(
                features.token_ids, features.lengths, np.zeros_like(features.lengths), features.token_type_ids
            )
        try:
            return {self._output: self._rows(features)}
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            message = f"{features.num_tokens} tokens do not fit on {self._encoder.device}"
        torch.cuda.empty_cache()  # outside of the handler, whose traceback holds what was allocated
        raise MemoryError(message)

    def close(self) -> None:
        """Free the model's memory."""
        del self._encoder, self._finish, self._graphs
        torch.cuda.empty_cache()

    def _rows(self, features: Features) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """Forwards are started one after another; the only wait is for the last one's vectors."""
        device = self._encoder.device
        dense = torch.empty(features.num_items, self._dimensions, device=device)
        for items, vectors in self._vectors(features):
            dense[items] = vectors
        if device.type == "cuda":
            fetched = torch.empty(dense.shape, pin_memory=True)
            fetched.copy_(dense, non_blocking=True)
            torch.cuda.current_stream(device).synchronize()
            dense = fetched
        return dense.numpy()

    def _vectors(self, features: Features) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Places in the batch and their vectors, forward by forward."""
        encoder = self._encoder
        for part in self._parts(features):
            arrays = fill(features, part, encoder.numbering, encoder.padding_id)
            replayed = self._graphs.run(arrays) if self._graphs else None
            if replayed is not None:
                yield replayed
                continue
            tensors: Tensors = upload(arrays, encoder.device)
            states = encoder.states(tensors, part.width, int(features.lengths[part.items[0]]))
            yield tensors["items"], self._finish(states, tensors)

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
