"""What the sidecar holds: a `Model` that is ready, the `Work` of one chunk on loan, its `WorkItem`s, a `Batch` of them.

Nouns with properties; no I/O, no policy. Times are the event loop's clock (monotonic seconds) unless said otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from shoal.adapters.base import Adapter, Prepared, runs_by_item
from shoal.catalog.spec import ModelSpec
from shoal.queue.base import Lease, Pull
from shoal.runtimes.base import SessionFacts
from shoal.types import Chunk, LoadedModel, Priority
from shoal.worker.batcher import Waiting
from shoal.worker.cost import CostModel, quantum
from shoal.worker.rows import Rows

__all__ = ["Batch", "Model", "Work", "WorkItem"]

MEAN_WEIGHT = 0.1
LEAST_SECONDS_PER_TOKEN = 1e-9
LEAST_BATCH_S = 1e-5
MAX_PACE = 5.0
DISTURBED_PACE = 0.75
JUDGED_BATCHES = 9
"""The median of so many batches is believed against the measurement at load."""


class Model:
    """A model that is loaded here and serves.

    Attributes:
        cost: as measured at load, or better: see `observe`.
        max_tokens: tokens that a batch may have for reasons of memory.
        most_tokens: the same while memory is as free as at load.
        max_items: items that a batch may have.
        quantum_tokens: tokens that a batch should have at most.
        waiting: prepared items that wait for the device.
        pulls: standing pulls by lane, the most urgent first.
        held_tokens: of the chunks on loan, those on the device included.
        preparing_tokens: of them, those of chunks that are being prepared; an estimate.
        prepare_s_per_token: moving mean of the time from a chunk's arrival until it is prepared.
        pace: moving mean of how much longer batches take than measured at load; the host may share its cores with us.
        tokens_per_chunk, tokens_per_item: moving means; until the first chunk has come, it counts for a quantum. The
            first leaves out the lane `bulk`, whose chunks are about a quantum each.
        is_open: whether it still takes chunks.
        load_s, reload_s: seconds that loading took, and would take again with its costs known.
        profile, drift: the tuned profile that it was loaded with, and how far its costs are from what that says.
        ready_at: since when it serves.
        used_at: when its last chunk came.
    """

    def __init__(
        self,
        spec: ModelSpec,
        adapter: Adapter,
        facts: SessionFacts,
        cost: CostModel,
        objective_s: float,
        max_tokens: int,
        max_items: int,
        load_s: float,
    ) -> None:
        self.spec = spec
        self.adapter = adapter
        self.facts = facts
        self.cost = cost
        self.max_tokens = self.most_tokens = max_tokens
        self.max_items = max_items
        self._objective_s = objective_s
        self.quantum_tokens = self._quantum()
        self.load_s = self.reload_s = load_s
        self.profile, self.drift = "", 0.0
        self.waiting: Waiting[WorkItem] = Waiting()
        self.pulls: dict[Priority, Pull] = {}
        self.held_tokens = 0
        self.preparing_tokens = 0
        self.prepare_s_per_token = 0.0
        self.pace = 1.0
        self._ratios: deque[float] = deque(maxlen=JUDGED_BATCHES)
        self._num_chunks = 0
        self.tokens_per_chunk = self.tokens_per_item = float(self.quantum_tokens)
        self.is_open = True
        self.ready_at = self.used_at = 0.0

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def full_batch_tokens(self) -> float:
        """Tokens of a batch that is full, be it for its tokens or for the number of its items."""
        return max(1.0, min(self.quantum_tokens, self.max_items * self.tokens_per_item))

    @property
    def item_s(self) -> float:
        """Seconds that an item's tokens take, as far as items have come; 0 before the first."""
        return self.cost.c_s * self.tokens_per_item if self._num_chunks else 0.0

    @property
    def seconds_per_token(self) -> float:
        """In full batches."""
        tokens = self.full_batch_tokens
        return max((self.cost.a_s + self.cost.c_s * tokens) / tokens, LEAST_SECONDS_PER_TOKEN)

    @property
    def held_s(self) -> float:
        """Seconds of work on loan."""
        return self.held_tokens * self.seconds_per_token

    @property
    def is_busy(self) -> bool:
        """Whether there is work for it, here or in the queue: a lane without credit may hold some."""
        return self.held_tokens > 0 or any(pull.credit == 0 for pull in self.pulls.values())

    def hold(self, num_tokens: int) -> None:
        """Count so many tokens more (or fewer) as held."""
        self.held_tokens += num_tokens

    @property
    def state(self) -> LoadedModel:
        """What is announced."""
        return LoadedModel(
            id=self.id,
            state="ready",
            a_s=self.cost.a_s,
            c_s=self.cost.c_s,
            quantum_tokens=self.quantum_tokens,
            load_s=self.load_s,
            runtime=self.facts.runtime,
            device=self.facts.device,
            precision=self.facts.precision,
            bytes_in_use=self.facts.bytes_in_use,
            version=self.facts.version,
            profile=self.profile,
            drift=self.drift,
        )

    def expected_s(self, num_tokens: int) -> float:
        """Seconds that a batch of so many tokens should take now."""
        return self.cost.seconds(num_tokens) * self.pace

    def observe(self, num_tokens: int, seconds: float) -> bool:
        """Let a batch's true duration into the pace; returns whether that changed the quantum.

        Noise on a shared machine only ever adds. So batches that take much less than measured at load mean that the
        measurement was disturbed, and the costs come down; slower ones mean load, and the costs stay.
        """
        ratio = seconds / max(self.cost.seconds(num_tokens), LEAST_BATCH_S)
        self.pace += MEAN_WEIGHT * (min(ratio, MAX_PACE) - self.pace)
        self._ratios.append(ratio)
        typical = median(self._ratios)
        if len(self._ratios) < JUDGED_BATCHES or typical > DISTURBED_PACE:
            return False
        self.cost = CostModel(self.cost.a_s * typical, self.cost.c_s * typical)
        self.pace = 1.0
        self._ratios.clear()
        return self._has_new_quantum()

    def halve_tokens(self, num_tokens: int) -> bool:
        """A batch of so many tokens did not fit: allow half. Returns whether that changed the quantum."""
        half = min(self.max_tokens, self.quantum_tokens, num_tokens) // 2
        self.max_tokens = max(half, self.spec.tokenization.max_length)
        return self._has_new_quantum()

    def double_tokens(self) -> bool:
        """Memory may be free again: allow twice as much, up to the first bound. Returns whether the quantum changed."""
        self.max_tokens = min(2 * self.max_tokens, self.most_tokens)
        return self._has_new_quantum()

    def _has_new_quantum(self) -> bool:
        before, self.quantum_tokens = self.quantum_tokens, self._quantum()
        return self.quantum_tokens != before

    def _quantum(self) -> int:
        return quantum(self.cost, self._objective_s, self.spec.tokenization.max_length, self.max_tokens)

    @property
    def prepare_s(self) -> float:
        """Seconds that preparing a full batch should take."""
        return self.prepare_s_per_token * self.full_batch_tokens

    def count_chunk(self, num_tokens: int, num_items: int, priority: Priority, seconds: float) -> None:
        """Let a chunk's true size, and the time that preparing it took, into the moving means."""
        self._num_chunks += 1
        weight = max(MEAN_WEIGHT, 1 / self._num_chunks)
        if priority != "bulk":
            self.tokens_per_chunk += weight * (num_tokens - self.tokens_per_chunk)
        self.tokens_per_item += weight * (num_tokens / num_items - self.tokens_per_item)
        self.prepare_s_per_token += weight * (seconds / max(num_tokens, 1) - self.prepare_s_per_token)


class Work:
    """One chunk on loan.

    Attributes:
        arrived_at: at the queue; its age decides when it goes.
        deadline: minus infinity once the work is closed, so that what is left of it falls out of every queue.
        num_tokens: what it counts for in its model's `held_tokens`: an estimate until it is prepared.
        prepared: what its items became, once tokenised.
        rows: their raw outputs as they come.
        inference_s: seconds on the device of the batches that it rode in.
    """

    __slots__ = (
        "arrived_at",
        "chunk",
        "deadline",
        "inference_s",
        "lease",
        "model",
        "num_tokens",
        "prepared",
        "prepared_at",
        "queue_s",
        "received_at",
        "rows",
    )

    def __init__(self, model: Model, lease: Lease, chunk: Chunk, now: float, unix_now: float) -> None:
        self.model = model
        self.lease = lease
        self.chunk = chunk
        self.received_at = now
        self.arrived_at = now - max(0.0, unix_now - lease.published_at)
        self.deadline = now + (chunk.deadline - unix_now)
        self.queue_s = max(0.0, unix_now - chunk.published_at) if chunk.published_at else 0.0
        self.num_tokens = chunk.estimated_tokens
        self.prepared: Sequence[Prepared] = ()
        self.prepared_at = now
        self.rows = Rows(0)
        self.inference_s = 0.0

    @property
    def is_open(self) -> bool:
        return self.deadline != float("-inf")

    def close(self) -> None:
        self.deadline = float("-inf")

    def prepare(self, prepared: Sequence[Prepared], now: float) -> None:
        """Its items are tokenised."""
        self.prepared = prepared
        self.prepared_at = now
        self.rows = Rows(sum(run.needs_device for run in prepared))

    def place_of(self, run: int) -> int:
        """Which of the request's items a run belongs to."""
        starts = sum(not prepared.continues and not prepared.is_shared for prepared in self.prepared[: run + 1])
        return self.chunk.first_item + max(0, starts - 1)

    @property
    def tokens_by_item(self) -> list[int]:
        """Tokens run for each item."""
        return [sum(run.cost for run in runs) for runs in runs_by_item(self.prepared)]

    @property
    def truncated_by_item(self) -> list[bool]:
        """Whether text of each item was cut away."""
        return [any(run.was_truncated for run in runs) for runs in runs_by_item(self.prepared)]


class WorkItem:
    """One prepared text or pair on its way to the device. See `batcher.Item`.

    Attributes:
        start: virtual start.
        num_crashes: how often the runtime host died while it was on the device.
    """

    __slots__ = ("cost", "index", "num_crashes", "prepared", "start", "work")

    def __init__(self, work: Work, index: int, prepared: Prepared, start: float) -> None:
        self.work = work
        self.index = index
        self.prepared = prepared
        self.cost = prepared.cost
        self.start = start
        self.num_crashes = 0

    @property
    def deadline(self) -> float:
        return self.work.deadline

    @property
    def runs_alone(self) -> bool:
        return self.num_crashes > 0


class Batch:
    """Items that share one run."""

    __slots__ = ("items", "model", "num_tokens")

    def __init__(self, model: Model, items: list[WorkItem]) -> None:
        self.model = model
        self.items = items
        self.num_tokens = sum(item.cost for item in items)

    @property
    def expected_s(self) -> float:
        """Seconds that it should take."""
        return self.model.expected_s(self.num_tokens)

    def halves(self) -> tuple[Batch, Batch]:
        """Two batches of half the items each."""
        middle = len(self.items) // 2
        return Batch(self.model, self.items[:middle]), Batch(self.model, self.items[middle:])
