"""With which settings a model is loaded: the operator's own, else those of the nearest profile, else the defaults."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from shoal.catalog.profiles import Match, find_profile, usable_cores
from shoal.catalog.spec import ModelSpec
from shoal.runtimes.base import Footprint, RuntimeOptions
from shoal.settings import WorkerSettings
from shoal.worker.cost import CostModel

__all__ = ["Choice", "choose", "drift", "runtime_options"]

logger = logging.getLogger(__name__)

MOST_DRIFT = 0.15
"""A machine on which batches take so much longer, or shorter, than in the profile is not as it was."""

_TYPICAL_TOKENS = 1024


class Choice(msgspec.Struct, frozen=True):
    """Settings for one model.

    Attributes:
        options: of the runtime.
        objective_s: latency objective.
        tokenizer_threads: that the worker should have at least.
        match: the profile that they are from, None for none.
    """

    options: RuntimeOptions
    objective_s: float
    tokenizer_threads: int = 1
    match: Match | None = None

    @property
    def profile(self) -> str:
        """Its name; "" for none."""
        return "" if self.match is None else self.match.profile.name


def choose(settings: WorkerSettings, spec: ModelSpec, footprint: Footprint) -> Choice:
    """The settings of a model on the device that the footprint names.

    Raises:
        ValueError: `runtime_options` is not a JSON object.
    """
    match = None
    if settings.profile == "auto":
        match = find_profile(
            model=spec.id,
            revision=spec.revision,
            runtime=settings.runtime,
            version=footprint.version,
            device=footprint.device,
            cores=usable_cores(),
        )
    given, tuned = runtime_options(settings), {} if match is None else match.settings
    untouched = WorkerSettings()

    def pick(name: str) -> Any:
        own = getattr(settings, name)
        return tuned.get(name, own) if own == getattr(untouched, name) else own

    extra = {name: value for name, value in tuned.items() if name not in _FIELDS} | given.extra
    if match is not None:
        note = f", {match.note}" if match.note else ""
        logger.info("%s: profile %s%s", spec.id, match.profile.name, note)
    options = RuntimeOptions(pick("precision"), pick("threads"), extra)
    return Choice(options, pick("latency_objective_ms") / 1000, pick("tokenizer_threads"), match)


def drift(choice: Choice, cost: CostModel) -> float:
    """How much longer a typical batch takes than the profile says, as a share; 0 without one of this very machine."""
    if choice.match is None or choice.match.note:
        return 0.0
    then_s = choice.match.profile.a_s + choice.match.profile.c_s * _TYPICAL_TOKENS
    if then_s <= 0:
        return 0.0
    share = cost.seconds(_TYPICAL_TOKENS) / then_s - 1
    if abs(share) > MOST_DRIFT:
        logger.warning(
            "%s: a batch takes %+.0f %% beside what profile %s says; run `shoal tune` again if that lasts",
            choice.match.profile.model,
            100 * share,
            choice.profile,
        )
    return share


_FIELDS = ("precision", "threads", "latency_objective_ms", "tokenizer_threads")
"""Settings of a worker that a profile may hold for a model."""


def runtime_options(settings: WorkerSettings) -> RuntimeOptions:
    """What a load is given without a profile.

    Raises:
        ValueError: `runtime_options` is not a JSON object.
    """
    try:
        extra = msgspec.json.decode(settings.runtime_options or "{}", type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ValueError(
            f"runtime_options is {settings.runtime_options!r}; it must be a JSON object: {error}"
        ) from None
    return RuntimeOptions(settings.precision, settings.threads, extra)
