"""`shoal keys`: makes, lists and revokes API keys in the file that gateways read."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import click

from shoal.cli.options import Command, setting
from shoal.settings import DAY_S, GatewaySettings

__all__ = ["keys"]

_UNITS_S = {"h": 3600, "d": DAY_S, "w": 7 * DAY_S}
_COLUMNS = ("id", "tenant", "class", "scopes", "models", "priority", "tokens a minute", "at once", "expires")
_PRIORITIES = ("interactive", "default", "bulk")


class _Lifetime(click.ParamType[int]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"([1-9]\d{0,5})([hdw])", str(value))
        if not found:
            self.fail(f"{value!r} is no time such as 12h, 90d or 8w.", param, ctx)
        return int(found[1]) * _UNITS_S[found[2]]


@click.group()
def keys() -> None:
    """Make, list and revoke API keys."""


@keys.command(cls=Command)
@setting(GatewaySettings, "keys_file")
@click.option("--tenant", required=True, help="Who gets the key; keys of one tenant share its part of the server.")
@click.option("--class", "tenant_class", default="standard", show_default=True, help="Kind of tenant, for metrics.")
@click.option("--scope", "scopes", multiple=True, help="operations (all), one of them such as embed, models, metrics.")
@click.option("--model", "models", multiple=True, help="Model that it may use, or a pattern such as 'BAAI/*'.")
@click.option(
    "--priority", type=click.Choice(_PRIORITIES), default="interactive", show_default=True, help="Most urgent allowed."
)
@click.option("--tokens-per-minute", type=click.IntRange(0), default=0, help="Tokens that it may run; 0: no limit.")
@click.option("--max-requests", type=click.IntRange(0), default=0, help="Requests at once; 0: no limit.")
@click.option("--expires", "lifetime_s", type=_Lifetime(), help="When it ends: 12h, 90d, 8w from now.")
def create(
    keys_file: str, lifetime_s: int | None, scopes: tuple[str, ...], models: tuple[str, ...], **limits: Any
) -> None:
    """Make a key and print it, this once: the file holds only its hash. Gateways see it within a second.

    \b
    shoal keys create --keys-file keys.jsonl --tenant search-team
    shoal keys create --keys-file keys.jsonl --tenant grafana --scope metrics --expires 90d
    """
    from shoal.gateway.keys import keyfile

    key, key_id = keyfile.new_key()
    created_at = int(time.time())
    record = keyfile.Key(
        key_id,
        keyfile.digest_of(key.encode()),
        created_at=created_at,
        expires_at=created_at + lifetime_s if lifetime_s else 0,
        scopes=scopes or ("operations", "models"),
        models=models or ("*",),
        **limits,
    )
    keyfile.add(_path(keys_file), record)
    click.echo(key)
    click.echo(f"{key_id} of {record.tenant} is in {keys_file}; this is the only time that the key is shown.", err=True)


@keys.command("list", cls=Command)
@setting(GatewaySettings, "keys_file")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def list_keys(keys_file: str, is_json: bool) -> None:
    """List the keys and what they allow, never the keys themselves.

    \b
    shoal keys list --keys-file keys.jsonl
    """
    import msgspec

    from shoal.gateway.keys import keyfile

    found = list(keyfile.read(_path(keys_file)).values())
    if is_json:
        rows = [msgspec.structs.asdict(key) for key in found]
        click.echo(msgspec.json.format(msgspec.json.encode([{**row, "sha256": row["sha256"][:8]} for row in rows])))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*_COLUMNS, box=None)
    for key in found:
        limits = (f"{key.tokens_per_minute or ''}", f"{key.max_requests or ''}")
        table.add_row(
            key.id,
            key.tenant,
            key.tenant_class,
            ", ".join(key.scopes),
            ", ".join(key.models),
            key.priority,
            *limits,
            _day(key.expires_at, time.time()),
        )
    Console(width=None if sys.stdout.isatty() else 1000, highlight=False).print(table)


@keys.command(cls=Command)
@setting(GatewaySettings, "keys_file")
@click.argument("key_id", metavar="ID")
def revoke(keys_file: str, key_id: str) -> None:
    """Take the key ID out of the file. Gateways refuse it within a second.

    \b
    shoal keys revoke 3f9a27c1 --keys-file keys.jsonl
    """
    from shoal.gateway.keys import keyfile

    gone = keyfile.remove(_path(keys_file), key_id)
    click.echo(f"{gone.id} of {gone.tenant} is revoked.")


def _path(keys_file: str) -> Path:
    if not keys_file:
        raise click.UsageError("Name the file of keys: --keys-file keys.jsonl (SHOAL_KEYS_FILE).")
    return Path(keys_file)


def _day(unix_s: int, now: float) -> str:
    if not unix_s:
        return "never"
    day = time.strftime("%Y-%m-%d", time.gmtime(unix_s))
    return f"{day} (over)" if unix_s <= now else day
