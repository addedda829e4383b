"""The program `walrus-node`: options in, exit code out.

0 ok, 1 failed at run time, 2 wrong usage, 3 data directory refused, 4 port in use.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence

import walrus_core

from walrus_node.app import StartError, run
from walrus_node.config import Config, parse_config

_LEVELS = {"trace": logging.DEBUG, "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node until it is told to stop."""
    config = parse_config(sys.argv[1:] if arguments is None else arguments, os.environ)
    try:
        _set_up_logging(config)
        asyncio.run(run(config))
    except StartError as error:
        logging.getLogger("walrus_node").critical("%s", error)
        sys.stderr.write(f"walrus-node: {error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"walrus-node: {error}\n")
        return 1
    return 0


def _set_up_logging(config: Config) -> None:
    """Python's lines go to standard output, Rust's to standard error, both to the file if one is given."""
    if config.log_file is not None:
        config.log_file.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(config.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
    bare = next((part for part in config.log_level.split(",") if "=" not in part), "info")
    logging.basicConfig(
        stream=sys.stdout,
        level=_LEVELS.get(bare, logging.ERROR),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    walrus_core.init_logging(config.log_level)


if __name__ == "__main__":
    sys.exit(main())
