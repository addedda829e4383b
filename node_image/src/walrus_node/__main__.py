"""The program `walrus-node`: options in, exit code out.

0 ok, 1 failed at run time, 2 wrong usage, 3 data directory refused, 4 port in use.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence

from walrus_node import logs
from walrus_node.app import run
from walrus_node.config import parse_config
from walrus_node.ending import StartError
from walrus_node.words import escaped


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node until it is told to stop."""
    config = parse_config(sys.argv[1:] if arguments is None else arguments, os.environ)
    try:
        logs.set_up(config)
        starts_again = asyncio.run(run(config))
    except StartError as error:
        logging.getLogger("walrus_node").critical("%s", error)
        sys.stderr.write(f"walrus-node: {escaped(str(error))}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"walrus-node: {error}\n")
        return 1
    if starts_again:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this very program
    return 0


if __name__ == "__main__":
    sys.exit(main())
