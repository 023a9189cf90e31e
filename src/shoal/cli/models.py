"""`shoal models`: what a running server serves, what is known about a model, and fetching one beforehand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from shoal.cli.options import Command, settings
from shoal.cli.recommend import recommend
from shoal.settings import ClientSettings, ModelSettings

if TYPE_CHECKING:
    from shoal.catalog.spec import ModelSpec
    from shoal.client import ServedModel

__all__ = ["models"]


@click.group()
def models() -> None:
    """List, choose, inspect and fetch models."""


models.add_command(recommend)


@models.command("list", cls=Command)
@click.option("--catalog", "is_catalog", is_flag=True, help="List what this installation knows, server or not.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@settings(server=ClientSettings, models_settings=ModelSettings)
def list_models(is_catalog: bool, is_json: bool, server: ClientSettings, models_settings: ModelSettings) -> None:
    """List the models that a running server serves; if there is none, those that the catalog knows.

    \b
    shoal models list
    shoal models list --url http://server:8080 --json
    shoal models list --catalog
    """
    import msgspec

    found = _known(models_settings) if is_catalog else _served_or_known(server, models_settings)
    if is_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)))
    else:
        _print_table(found)


def _served_or_known(server: ClientSettings, models_settings: ModelSettings) -> list[ServedModel]:
    from shoal.client import Client
    from shoal.errors import NotReady

    is_chosen = click.get_current_context().get_parameter_source("url") != ParameterSource.DEFAULT
    try:
        with Client(server.url, api_key=server.api_key, max_retries=0) as client:
            return client.models()
    except NotReady:
        if is_chosen:
            raise
        click.echo(f"No server answers at {server.url}. Models that this installation knows:", err=True)
        return _known(models_settings)


def _known(models_settings: ModelSettings) -> list[ServedModel]:
    from shoal.catalog import entries, local_names
    from shoal.client import ServedModel

    known = [
        ServedModel(
            entry.id,
            entry.operations,
            entry.dimensions,
            entry.max_length,
            aliases=entry.aliases,
            matryoshka_dimensions=entry.matryoshka_dimensions,
            prompts=entry.prompts,
            revision=entry.revision,
            licence=entry.licence,
        )
        for entry in entries()
    ]
    return known + [ServedModel(name, ("embed",), 0, 0) for name in local_names(models_settings)]


def _print_table(found: Sequence[ServedModel]) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = {
        "model": [model.id for model in found],
        "state": [model.state for model in found],
        "operations": [", ".join(model.operations) for model in found],
        "dimensions": [f"{model.dimensions or ''}" for model in found],
        "max length": [f"{model.max_length or ''}" for model in found],
        "prompts": [", ".join(model.prompts) for model in found],
        "also called": [", ".join(model.aliases) for model in found],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    table = Table(*shown, box=None)
    for row in zip(*shown.values(), strict=True):
        table.add_row(*row)
    # Nobody sees the edge of a pipe: lines are not to be cut there.
    Console(width=None if sys.stdout.isatty() else 1000, highlight=False).print(table)


@models.command(cls=Command)
@click.argument("name")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@settings(models_settings=ModelSettings)
def show(name: str, is_json: bool, models_settings: ModelSettings) -> None:
    """Show what is known about a model: NAME is a hub id, a directory or package:NAME.

    \b
    shoal models show sentence-transformers/all-MiniLM-L6-v2
    """
    import msgspec

    from shoal.catalog import resolve

    facts = _facts(resolve(name, models_settings))
    if is_json:
        click.echo(msgspec.json.format(msgspec.json.encode(facts)))
        return
    width = max(len(key) for key in facts)
    for key, value in facts.items():
        click.echo(f"{key:{width}}  {_line(value)}")


def _facts(spec: ModelSpec) -> dict[str, Any]:
    import msgspec

    facts = {
        "model": spec.id,
        "also called": list(spec.aliases),
        "operations": list(spec.operations),
        "family": spec.family,
        "dimensions": spec.dimensions,
        "may be cut to": list(spec.matryoshka_dimensions),
        "max length": spec.tokenization.max_length,
        "vocabulary": spec.vocabulary_size,
        "modules": [msgspec.to_builtins(module) for module in spec.modules],
        "prompts": spec.prompts,
        "default prompt": spec.default_prompt_name,
        "licence": spec.licence,
        "source": spec.source,
        "revision": spec.revision,
        "directory": spec.directory,
        "weights": {path: Path(path).stat().st_size for path in spec.weights},
    }
    return {key: value for key, value in facts.items() if value not in (None, "", [], {}, 0)}


def _line(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_line(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "; ".join(_line(item) for item in value)
    return str(value)


@models.command(cls=Command)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@settings(models_settings=ModelSettings)
def pull(names: tuple[str, ...], models_settings: ModelSettings) -> None:
    """Fetch models and check that they can be served, so that a later start needs no network.

    \b
    shoal models pull BAAI/bge-small-en-v1.5
    """
    from rich.console import Console

    from shoal import catalog

    console = Console(stderr=True)
    for name in names:
        # The hub's own bars show each file; this line shows that something happens between them.
        with console.status(f"fetching {name}"):
            spec = catalog.pull(name, models_settings)
        size_bytes = sum(Path(path).stat().st_size for path in spec.weights)
        click.echo(f"{spec.id}: {size_bytes / 1e6:,.0f} MB of weights in {spec.directory}")
