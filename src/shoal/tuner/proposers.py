"""Who says what to try next: plug-ins that read the ledger. Only the evaluator accepts.

- `sweep`: each knob alone first, then the changes that helped, together. Needs nothing.
- `optuna`: a tree-structured Parzen estimator (extra `[tune]`), for spaces too large to sweep.
- `llm`: a language model behind an OpenAI-compatible URL, which reads the ledger and answers with configurations. What
  it says is data: it is checked against the space, and never run.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import httpx
import msgspec

from shoal.errors import InvalidRequest, ShoalError
from shoal.tuner.ledger import Entry, canonical
from shoal.tuner.space import Configuration, Space

__all__ = ["LLM", "Optuna", "Proposer", "Sweep"]

_COUNT = 4
_MOST_ENTRIES = 200


class Proposer(Protocol):
    """Proposes configurations."""

    def propose(self, space: Space, entries: Sequence[Entry]) -> list[Configuration]:
        """What to fit next, given all that is known; [] if there is nothing left worth trying."""
        ...


def _fits(entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.stage == "fit"]


def _predicted(entry: Entry) -> float:
    return entry.figures.get("predicted", 0.0) if entry.status == "measured" else 0.0


class Sweep:
    """Each knob alone; then, of the changes that beat the default by themselves, all combinations, best first."""

    def propose(self, space: Space, entries: Sequence[Entry]) -> list[Configuration]:
        tried = {canonical(entry.configuration): entry for entry in _fits(entries)}
        alone = [one for one in space.neighbours({}) if canonical(one) not in tried]
        if alone:
            return alone
        base = _predicted(tried["{}"])
        good = [entry for entry in tried.values() if len(entry.configuration) == 1 and _predicted(entry) > base]
        good.sort(key=_predicted, reverse=True)
        for count in range(2, len(space.knobs) + 1):
            joined = [_join(parts) for parts in itertools.combinations([entry.configuration for entry in good], count)]
            new = [one for one in joined if len(one) == count and canonical(one) not in tried]
            if new:
                return new[:_COUNT]
        return []


def _join(parts: Sequence[Configuration]) -> Configuration:
    joined: Configuration = {}
    for part in parts:
        joined |= part
    return joined


class Optuna:
    """Optuna's TPE sampler over the same knobs, told everything that the ledger holds.

    Raises:
        ShoalError: optuna is not installed; names the extra.
    """

    def __init__(self, seed: int = 0) -> None:
        self._optuna = _optional("optuna", "tune")
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        self._seed = seed

    def propose(self, space: Space, entries: Sequence[Entry]) -> list[Configuration]:
        tried = {canonical(entry.configuration) for entry in _fits(entries)}
        if len(tried) >= _size(space):
            return []
        distributions = {
            knob.name: self._optuna.distributions.CategoricalDistribution([None, *knob.values]) for knob in space.knobs
        }
        sampler = self._optuna.samplers.TPESampler(seed=self._seed + len(tried), n_startup_trials=8)
        study = self._optuna.create_study(direction="maximize", sampler=sampler)
        for entry in _fits(entries):
            parameters = {knob.name: entry.configuration.get(knob.name) for knob in space.knobs}
            study.add_trial(
                self._optuna.trial.create_trial(params=parameters, distributions=distributions, value=_predicted(entry))
            )
        found: dict[str, Configuration] = {}
        for _ in range(_COUNT * 8):
            asked = study.ask(distributions).params
            configuration = {name: value for name, value in asked.items() if value is not None}
            if canonical(configuration) not in tried:
                found[canonical(configuration)] = configuration
            if len(found) == _COUNT:
                break
        untried = (one for one in space.all() if canonical(one) not in tried and canonical(one) not in found)
        return [*found.values(), *itertools.islice(untried, _COUNT - len(found))]  # it asked for what is known already


def _size(space: Space) -> int:
    size = 1
    for knob in space.knobs:
        size *= 1 + len(knob.values)
    return size


def _optional(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ShoalError(f"{module} is not installed.", hint=f"pip install 'shoal[{extra}]'") from None


_SYSTEM = """You tune an inference server. You get the knobs with their allowed values, and a ledger of trials \
(fit: one configuration with its predicted figure, higher is better; status crash or discard: it failed, with the \
reason). Propose up to {count} configurations worth trying next that are not in the ledger. Answer with a JSON array \
of objects from knob to value, and nothing else; leave a knob out to keep its default; [] if nothing is worth trying."""


class LLM:
    """A language model behind an OpenAI-compatible chat completions URL.

    Args:
        url: base URL, such as http://127.0.0.1:11434/v1.
        model: as the server calls it.
        api_key: empty for none.
    """

    def __init__(self, url: str, model: str, api_key: str = "", timeout_s: float = 120.0) -> None:
        self._url = url.rstrip("/") + "/chat/completions"
        self._model = model
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout_s = timeout_s

    def propose(self, space: Space, entries: Sequence[Entry]) -> list[Configuration]:
        """See `Proposer`.

        Raises:
            ShoalError: the server cannot be reached, or answers with what is no list of configurations.
        """
        text = self._ask(space, entries)
        start, end = text.find("["), text.rfind("]")
        try:
            proposed = msgspec.json.decode(text[start : end + 1], type=list[dict[str, Any]])
        except msgspec.MsgspecError:
            raise ShoalError(f"{self._model} answers with what is no JSON array of objects: {text[:200]!r}.") from None
        return [one for one in proposed[:_COUNT] if _is_valid(space, one)]

    def _ask(self, space: Space, entries: Sequence[Entry]) -> str:
        ledger = [
            {name: value for name, value in msgspec.to_builtins(entry).items() if name not in ("at", "seconds")}
            for entry in entries[-_MOST_ENTRIES:]
        ]
        known = msgspec.json.encode({"knobs": space.knobs, "ledger": ledger}).decode()
        messages = [
            {"role": "system", "content": _SYSTEM.format(count=_COUNT)},
            {"role": "user", "content": known},
        ]
        body = {"model": self._model, "messages": messages, "temperature": 0.7}
        try:
            reply = httpx.post(self._url, json=body, headers=self._headers, timeout=self._timeout_s)
            reply.raise_for_status()
            return str(reply.json()["choices"][0]["message"]["content"])
        except (httpx.HTTPError, KeyError, IndexError, ValueError, TypeError) as error:
            raise ShoalError(f"The proposer at {self._url} does not answer: {error!r}.") from None


def _is_valid(space: Space, configuration: Configuration) -> bool:
    try:
        space.check(configuration)
    except InvalidRequest:
        return False
    return bool(configuration)
