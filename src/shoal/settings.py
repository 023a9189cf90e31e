"""Every setting, declared once: flag, `SHOAL_*` variable, help text and docs row all come from here.

A group of settings is a frozen dataclass whose fields are made with `setting`. `declarations` lists them for the
command line and the docs, `from_environment` fills a group. This is the only file that reads `os.environ`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import typing
from pathlib import Path
from typing import Any, TypeVar

__all__ = [
    "BrokerSettings",
    "ClientSettings",
    "Declaration",
    "GatewaySettings",
    "LogSettings",
    "ModelSettings",
    "QueueSettings",
    "ServeSettings",
    "TunerSettings",
    "WorkerSettings",
    "declarations",
    "environment",
    "from_environment",
    "hub_is_offline",
    "inherited_environment",
    "named_secret",
    "parse",
    "parse_size",
    "state_directory",
]

T = TypeVar("T")

DAY_S = 86_400


def setting(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] = (),
    minimum: float = -math.inf,
    maximum: float = math.inf,
    is_above_minimum: bool = False,
    is_json_object: bool = False,
    is_size: bool = False,
    is_secret: bool = False,
    flag: str = "",
) -> Any:
    """Declare a field: its default, one sentence of help, what it may be, and its flag if that is not its name.

    Text from outside is held to what it may be; a group that code makes is not.
    """
    metadata = {
        "help": help,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "is_above_minimum": is_above_minimum,
        "is_json_object": is_json_object,
        "is_size": is_size,
        "is_secret": is_secret,
        "short_flag": flag,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class GatewaySettings:
    """The HTTP side."""

    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(8080, "Port to listen on; 0 takes a free one and prints it.", minimum=0, maximum=65535)
    keys_file: str = setting(
        "", "File of API keys, as `shoal keys create` writes it; empty lets everybody in who reaches the address."
    )
    allow_open: bool = setting(
        False, "Allow a non-loopback address without API keys: anybody who reaches it may use it."
    )
    open_metrics: bool = setting(False, "With API keys: answer /metrics without one.")
    open_docs: bool = setting(True, "With API keys: answer /docs and /openapi.json without one.")
    tls_cert: str = setting("", "Certificate (PEM, with its chain) to serve HTTPS with; read again when it changes.")
    tls_key: str = setting("", "Private key of the certificate (PEM); empty if it stands in the same file.")
    tls_client_ca: str = setting("", "Authorities (PEM) one of which must have signed a client's certificate.")
    cors_origins: str = setting(
        "", "Comma-separated origins whose pages may call this server from a browser; * allows all."
    )
    max_body_bytes: int = setting(32 * 1024 * 1024, "Largest request body in bytes (413 above).", minimum=1)
    max_items: int = setting(2048, "Most items in one request (413 above).", minimum=1)
    max_item_bytes: int = setting(1024 * 1024, "Largest single text in bytes (413 above).", minimum=1)
    timeout_s: float = setting(
        60.0,
        "Seconds that a request may take if its X-Shoal-Timeout header does not say; 504 after.",
        minimum=0,
        maximum=DAY_S,
        is_above_minimum=True,
    )
    body_timeout_s: float = setting(
        60.0,
        "Seconds in which a request's body must have arrived, whatever time the request may take; 504 after.",
        minimum=0,
        maximum=DAY_S,
        is_above_minimum=True,
    )
    max_wait_s: float = setting(
        30.0,
        "Longest estimated wait for workers that a request is let in with (429 above); half of the time that it has, "
        "if that is less.",
        minimum=0,
        maximum=DAY_S,
    )
    header_timeout_s: float = setting(
        10.0,
        "Seconds in which a request's line and headers must have arrived; the connection is closed after.",
        minimum=0,
        maximum=DAY_S,
        is_above_minimum=True,
    )
    keep_alive_s: float = setting(
        75.0,
        "Seconds after which an idle connection is closed; longer than clients' pools and proxies keep theirs.",
        minimum=0,
        maximum=DAY_S,
        is_above_minimum=True,
    )
    max_header_bytes: int = setting(32 * 1024, "Largest request line and headers in bytes (431 above).", minimum=1)
    max_headers: int = setting(100, "Most headers in one request (431 above).", minimum=1)
    max_connections: int = setting(4096, "Most connections at once (503 above).", minimum=1)
    otlp_endpoint: str = setting(
        "", "Base URL of an OpenTelemetry collector (OTLP over HTTP) for traces, such as http://127.0.0.1:4318."
    )
    trace_ratio: float = setting(
        1.0,
        "Part of the requests that are traced; where a client sends a traceparent, its own choice holds.",
        minimum=0,
        maximum=1,
    )
    access_log: bool = setting(False, "Log a line for each request (never its text).")
    graceful_s: float = setting(10.0, "Seconds that open requests get to finish at shutdown.", minimum=0, maximum=DAY_S)


@dataclasses.dataclass(frozen=True)
class QueueSettings:
    """Where chunks wait."""

    queue: str = setting("", "NATS URL, such as nats://127.0.0.1:4222; empty keeps the queue in memory (shoal serve).")
    queue_token: str = setting("", "Token to log in to NATS with.", is_secret=True)
    pool: str = setting("default", "Pool: workers of one pool are alike and share its lanes.")
    lease_s: float = setting(
        3.0, "Seconds after which work of a silent worker goes to another one.", minimum=0.5, maximum=3600
    )
    max_deliveries: int = setting(5, "How often a chunk is tried before it is given up.", minimum=1)


@dataclasses.dataclass(frozen=True)
class WorkerSettings:
    """The device side."""

    runtime: str = setting(
        "auto",
        "Runtime that runs the models; auto is torch where it finds a CUDA device, else openvino.",
        choices=("auto", "openvino", "torch", "fake"),
    )
    precision: str = setting(
        "auto",
        "Number format on the device; auto is bfloat16 where the device computes in it natively, else float32.",
        choices=("auto", "float32", "bfloat16", "float16", "int8_weights", "int8"),
    )
    threads: int = setting(0, "Threads of the runtime; 0 means all cores this process may use.", minimum=0)
    tokenizer_threads: int = setting(1, "Threads that tokenise large chunks beside the device.", minimum=1)
    latency_objective_ms: float = setting(
        250.0,
        "Time in which a worker aims to answer; a batch takes at most 0.6 of it.",
        minimum=0,
        is_above_minimum=True,
    )
    max_batch_tokens: int = setting(
        32768, "Upper bound of tokens in a batch, whatever the latency objective allows.", minimum=1
    )
    max_batch_items: int = setting(1024, "Upper bound of items in a batch.", minimum=1)
    truncate: bool = setting(
        True, "What to do with a text that is too long if the request does not say: cut and flag it, or refuse it."
    )
    worker_host: str = setting("127.0.0.1", "Address of a worker's own page (metrics, health).")
    worker_port: int = setting(
        0,
        "Port of a worker's own page: /metrics, /healthz, /readyz; 0 has none. With several workers of `shoal serve`, "
        "the first one's. In one process, `shoal serve` shows all on its own port.",
        minimum=0,
        maximum=65535,
    )
    memory_budget: str = setting(
        "",
        "Memory that models may take together, such as 6GiB; empty takes 0.8 of what is free at start, or 0.9 of a "
        "GPU's. Beyond, the least recently used is unloaded for one that is wanted.",
        is_size=True,
    )
    pin: str = setting("", "Comma-separated models that are never unloaded once they are loaded.")
    keep_dead_bodies: bool = setting(
        False, "Keep the texts of requests that were given up in the dead letters, so that they can be replayed."
    )
    drain_s: float = setting(
        10.0,
        "Seconds that running work gets to finish at shutdown; the rest is handed back.",
        minimum=0,
        maximum=DAY_S,
    )
    profile: str = setting(
        "auto",
        "Tuned settings: auto takes the nearest profile that `shoal tune` or the package has for a model; what you set "
        "yourself stays.",
        choices=("auto", "none"),
    )
    runtime_options: str = setting(
        "",
        "Further options of the runtime as JSON, such as the fake runtime's a_s and c_s.",
        is_json_object=True,
    )


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """Where models come from."""

    models_directory: str = setting("", "Directory whose subdirectories are models, served under their names.")
    ignore_config_keys: str = setting(
        "", "Comma-separated config.json keys that you know not to change the vectors; others unknown are refused."
    )
    trusted_code: str = setting(
        "",
        "Comma-separated organisation/model@commit (all 40 digits) whose Python code may be run, by the runtime torch, "
        "for models that bring their own; any other is refused.",
    )


@dataclasses.dataclass(frozen=True)
class LogSettings:
    """What is written to stderr; never a user's text."""

    log_format: str = setting(
        "text", "Form of log lines: text for people, json for machines.", choices=("text", "json")
    )
    log_level: str = setting("info", "Least serious lines shown.", choices=("debug", "info", "warning", "error"))


@dataclasses.dataclass(frozen=True)
class ServeSettings:
    """How `shoal serve` spreads over processes."""

    workers: int = setting(
        0,
        "Worker processes beside the gateway, with a broker between them; 0 runs the worker in the same process.",
        minimum=0,
    )


@dataclasses.dataclass(frozen=True)
class BrokerSettings:
    """The bundled nats-server."""

    broker_host: str = setting("127.0.0.1", "Address to listen on.", flag="--host")
    broker_port: int = setting(
        4222, "Port to listen on; 0 takes a free one and prints it.", minimum=0, maximum=65535, flag="--port"
    )
    broker_directory: str = setting(
        "", "Directory for what the broker keeps; empty makes a temporary one.", flag="--store-directory"
    )
    broker_token: str = setting("", "Token that clients of the broker must show.", is_secret=True, flag="--token")


@dataclasses.dataclass(frozen=True)
class ClientSettings:
    """For commands that talk to a running server."""

    url: str = setting("http://127.0.0.1:8080", "Base URL of the server.")
    api_key: str = setting("", "Key to present to the server.", is_secret=True)


@dataclasses.dataclass(frozen=True)
class TunerSettings:
    """A language model that proposes what to try (`shoal tune --proposer llm`)."""

    proposer_url: str = setting("", "Base URL of its OpenAI-compatible API, such as http://127.0.0.1:11434/v1.")
    proposer_model: str = setting("", "Its name there.")
    proposer_key: str = setting("", "Key to present to it.", is_secret=True)


@dataclasses.dataclass(frozen=True)
class Declaration:
    """One setting, as the command line and the docs need it."""

    name: str
    kind: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    minimum: float = -math.inf
    maximum: float = math.inf
    is_above_minimum: bool = False
    is_json_object: bool = False
    is_size: bool = False
    is_secret: bool = False
    short_flag: str = ""

    @property
    def flag(self) -> str:
        return self.short_flag or "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "SHOAL_" + self.name.upper()

    @property
    def range(self) -> str:
        """The numbers allowed, in words; empty if all are, or it is no number."""
        if self.minimum == -math.inf:
            return ""
        least = f"above {self.minimum:g}" if self.is_above_minimum else f"at least {self.minimum:g}"
        return least if self.maximum == math.inf else f"{least}, at most {self.maximum:g}"

    def problem_of(self, value: Any) -> str:
        """What a value must be instead; empty if it is allowed."""
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(self.choices)}"
        if self.is_json_object and value and not _is_json_object(value):
            return 'must be a JSON object, such as {"a_s": 0.01}'
        if self.is_size and not _is_size(value):
            return "must be a number of bytes, such as 500MB or 6GiB"
        if self.range and not self._is_in_range(value):
            return f"must be {self.range}"
        return ""

    def _is_in_range(self, value: float) -> bool:
        is_least = value > self.minimum if self.is_above_minimum else value >= self.minimum
        return is_least and value <= self.maximum and math.isfinite(value)


def parse_size(text: str) -> int:
    """Bytes that a text such as `6GiB`, `500 MB` or `1000000` stands for; 0 if it is empty.

    Raises:
        ValueError: it is no size.
    """
    matched = _SIZE(text.strip().lower() or "0")
    if matched is None:
        raise ValueError(f"{text!r} is no number of bytes")
    number, unit, is_binary = float(matched[1]), matched[2] or "", bool(matched[3])
    return int(number * (1024 if is_binary else 1000) ** ("kmgt".index(unit) + 1 if unit else 0))


_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])(i)?)?b?").fullmatch


def _is_size(text: str) -> bool:
    try:
        parse_size(text)
    except ValueError:
        return False
    return True


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def declarations(group: type[Any]) -> list[Declaration]:
    """The settings of a group, in order."""
    kinds = typing.get_type_hints(group)
    return [
        Declaration(
            name=field.name,
            kind=kinds[field.name],
            default=field.default,
            **field.metadata,
        )
        for field in dataclasses.fields(group)
    ]


def parse(declaration: Declaration, text: str) -> Any:
    """The value that `text` stands for.

    Raises:
        ValueError: names the variable, the value and what is allowed.
    """
    if declaration.kind is bool:
        words = {
            "1": True,
            "true": True,
            "yes": True,
            "on": True,
            "0": False,
            "false": False,
            "no": False,
            "off": False,
        }
        if text.lower() not in words:
            raise ValueError(f"{declaration.variable} is {text!r}; allowed: true or false")
        return words[text.lower()]
    try:
        value = declaration.kind(text)
    except ValueError:
        raise ValueError(f"{declaration.variable} is {text!r}; it must be a {declaration.kind.__name__}") from None
    if problem := declaration.problem_of(value):
        raise ValueError(f"{declaration.variable} is {text!r}; it {problem}")
    return value


def from_environment(group: type[T], **overrides: Any) -> T:
    """A group filled from overrides first, then from `SHOAL_*` variables, then from defaults."""
    values = dict(overrides)
    for declaration in declarations(group):
        text = os.environ.get(declaration.variable)
        if declaration.name not in values and text is not None:
            values[declaration.name] = parse(declaration, text)
    return group(**values)


def environment(*groups: Any) -> dict[str, str]:
    """The variables that make `from_environment` in a child process give equal groups; defaults are left out."""
    variables = {}
    for group in groups:
        for declaration in declarations(type(group)):
            value = getattr(group, declaration.name)
            if value != declaration.default:
                variables[declaration.variable] = str(value)
    return variables


def inherited_environment() -> dict[str, str]:
    """A copy of this process's environment, to start a child with."""
    return dict(os.environ)


def named_secret(variable: str) -> str:
    """The value of a variable that the user names for us to find a secret in, so that none stands on a command line.

    Raises:
        ValueError: it is not set, or empty.
    """
    if not (value := os.environ.get(variable, "")):
        raise ValueError(f"The variable {variable} is not set.")
    return value


def hub_is_offline() -> bool:
    """Whether HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbids going to the hub."""
    return any(os.environ.get(name, "").lower() in {"1", "true", "yes", "on"} for name in _OFFLINE)


_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def state_directory() -> Path:
    """Where Shoal keeps what it makes itself (broker data, compiled graphs): $XDG_CACHE_HOME/shoal, ~/.cache/shoal."""
    root = os.environ.get("SHOAL_STATE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "shoal"
    )
    return Path(root)
