"""What may be turned: knobs, and configurations, which are the knobs that differ from the default. Pure.

A configuration is a plain dict from a knob's name to its value, and {} is the default, so that what a profile or a
ledger says is only what was changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from shoal.errors import InvalidRequest
from shoal.runtimes.knobs import Knob, knobs_of
from shoal.settings import WorkerSettings, declarations

__all__ = ["Configuration", "Space", "check_values", "name_of", "open_space", "parse_configuration", "worker_settings"]

Configuration = dict[str, Any]

_SIDECAR = (
    Knob("latency_objective_ms", (50.0, 100.0, 500.0), "A batch takes at most 0.6 of it."),
    Knob("tokenizer_threads", (2,), "Threads that tokenise beside the device."),
)
"""Knobs of every runtime: they are the sidecar's."""


class Space(msgspec.Struct, frozen=True):
    """All configurations of some knobs."""

    knobs: tuple[Knob, ...]

    def neighbours(self, of: Configuration) -> Iterator[Configuration]:
        """Each configuration in which one knob differs."""
        for knob in self.knobs:
            for value in knob.values:
                if of.get(knob.name) != value:
                    yield {**of, knob.name: value}
            if knob.name in of:
                yield {name: value for name, value in of.items() if name != knob.name}

    def all(self) -> Iterator[Configuration]:
        """Every configuration, those with few changes first."""
        for count in range(len(self.knobs) + 1):
            for chosen in itertools.combinations(self.knobs, count):
                for values in itertools.product(*(knob.values for knob in chosen)):
                    yield {knob.name: value for knob, value in zip(chosen, values, strict=True)}

    def holds(self, configuration: Configuration) -> bool:
        """Whether it could be chosen; `check` says why not."""
        values = {knob.name: knob.values for knob in self.knobs}
        return all(value in values.get(name, ()) for name, value in configuration.items())

    def check(self, configuration: Configuration) -> None:
        """Raises: InvalidRequest: a knob or a value that is not in the space; names what is."""
        for name, value in configuration.items():
            knob = next((knob for knob in self.knobs if knob.name == name), None)
            if knob is None:
                known = ", ".join(knob.name for knob in self.knobs)
                raise InvalidRequest(f"There is no knob {name!r}; there are: {known}.", param=name)
            if value not in knob.values:
                raise InvalidRequest(
                    f"{name} is {value!r}; it may be {', '.join(map(repr, knob.values))}, or left out.", param=name
                )


def open_space(runtime: str, num_cores: int, only: Sequence[str] = ()) -> Space:
    """The knobs of a runtime on a machine; `only` cuts them to those named, or those with values, as in `threads=1,2`.

    Raises:
        InvalidRequest: there is no such knob, or a value that it cannot have.
    """
    knobs = {knob.name: knob for knob in (*knobs_of(runtime, num_cores), *_SIDECAR)}
    if not only:
        return Space(tuple(knobs.values()))
    chosen = []
    for text in only:
        name, mark, listed = text.partition("=")
        if name not in knobs:
            raise InvalidRequest(f"There is no knob {name!r}; there are: {', '.join(knobs)}.", param="knob")
        values = tuple(_value(word) for word in listed.split(",")) if mark else knobs[name].values
        for value in values if mark else ():
            _check_value(knobs[name], value)
        chosen.append(msgspec.structs.replace(knobs[name], values=values))
    return Space(tuple(chosen))


def parse_configuration(text: str) -> Configuration:
    """What people write for a configuration: `runtime=torch threads=1`.

    Raises:
        InvalidRequest: a word is not name=value.
    """
    configuration: Configuration = {}
    for word in text.split():
        name, mark, value = word.partition("=")
        if not (name and mark and value):
            raise InvalidRequest(f"{word!r} is not name=value, as in: runtime=torch threads=1.", param="beside")
        if "," in value:
            raise InvalidRequest(
                f"{word!r} has a comma in its value, and is one configuration.",
                param="beside",
                hint="Spaces part settings, as in: runtime=torch threads=1.",
            )
        configuration[name] = _value(value)
    return configuration


def check_values(configuration: Configuration, runtime: str, num_cores: int) -> None:
    """Refuse what cannot be, as far as that can be told without starting a server.

    Args:
        runtime: of the default; a configuration may name another.

    Raises:
        InvalidRequest: a setting or a knob with a value that it cannot have.
    """
    wanted = configuration.get("runtime", runtime)
    knobs = {knob.name: knob for knob in (*knobs_of(wanted, num_cores), *_SIDECAR)}
    for name, value in configuration.items():
        _check_value(knobs.get(name, Knob(name, (), "")), value)


def _check_value(knob: Knob, value: Any) -> None:
    setting = next((one for one in declarations(WorkerSettings) if one.name == knob.name), None)
    kinds = {setting.kind} if setting else {type(known) for known in knob.values}
    problem = ""
    for kind in kinds:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            problem = _KINDS[kind]
    if setting and (setting.choices or not problem):
        problem = setting.problem_of(value) or problem
    if problem or value == "":
        raise InvalidRequest(f"{knob.name} is {value!r}; it {problem or 'must have a value'}.", param=knob.name)


_KINDS: dict[type, str] = {
    int: "must be a whole number",
    float: "must be a number",
    str: "must be a word",
    bool: "must be true or false",
}


def _value(word: str) -> Any:
    try:
        return msgspec.json.decode(word)
    except msgspec.MsgspecError:
        return word


def name_of(configuration: Configuration) -> str:
    """How people are told of a configuration."""
    return " ".join(f"{name}={configuration[name]}" for name in sorted(configuration)) or "default"


def worker_settings(configuration: Configuration, base: WorkerSettings) -> WorkerSettings:
    """The worker's settings of a configuration: what is no setting of its own is an option of the runtime."""
    known = WorkerSettings.__dataclass_fields__
    own = {name: value for name, value in configuration.items() if name in known}
    options = msgspec.json.decode(base.runtime_options or "{}", type=dict[str, Any])
    options |= {name: value for name, value in configuration.items() if name not in known}
    text = msgspec.json.encode(options).decode() if options else ""
    return type(base)(**{**_fields(base), **own, "runtime_options": text})


def _fields(settings: WorkerSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in WorkerSettings.__dataclass_fields__}
