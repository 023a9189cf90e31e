"""The entry point of the `shoal` script: from the first import on, Ctrl-C ends it with 130 and not a word.

By default Ctrl-C raises KeyboardInterrupt wherever the process is. In the middle of an import or a finalizer that is
printed, or swallowed by a library. A command that has something to tidy up asks for it once it does.
"""

from __future__ import annotations

import os
import signal

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments name."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if it is ignored, as under nohup
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
    from shoal.cli.root import cli

    cli(prog_name="shoal")


if __name__ == "__main__":
    main()
