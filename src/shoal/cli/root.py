"""The root of the command line: what the commands are, and how an error leaves the process.

A command returns its exit code, or nothing for 0. An error raised on purpose becomes one red line and exit code 1,
wrong usage 2, Ctrl-C 130; `--debug` shows where an error came from.
"""

from __future__ import annotations

import errno
from typing import Any

import click

import shoal
from shoal.cli.bench import bench
from shoal.cli.dlq import dlq
from shoal.cli.doctor import doctor
from shoal.cli.embed import embed
from shoal.cli.keys import keys
from shoal.cli.models import models
from shoal.cli.serve import broker, gateway, serve, worker
from shoal.cli.tune import research, tune
from shoal.errors import ShoalError

__all__ = ["cli"]


class _Root(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(130)
        except (ShoalError, OSError) as error:
            if ctx.params["debug"] or getattr(error, "errno", None) == errno.EPIPE:
                raise
            _report(error)
            ctx.exit(1)
        ctx.exit(code or 0)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order in which they are added, the first to try first


def _report(error: ShoalError | OSError) -> None:
    message, hint = (error.message, error.hint) if isinstance(error, ShoalError) else (str(error), None)
    click.secho(f"error: {message}", fg="red", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--debug", is_flag=True, envvar="SHOAL_DEBUG", help="Show where an error came from.")
@click.version_option(shoal.__version__, message="shoal %(version)s")
def cli(debug: bool) -> None:
    """A fleet of small open models behind one URL.

    \b
    shoal serve                                       serve the demo model on http://127.0.0.1:8080
    shoal embed "some text" --output vectors.npy      embed with the server that runs
    shoal doctor                                      see what this machine can do
    """


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(f"shoal {shoal.__version__}")


for _command in (serve, embed, models, bench, tune, research, keys, doctor, gateway, worker, broker, dlq, version):
    cli.add_command(_command)
