"""Where log lines go and which of them: Python's and Rust's, set up once and changed while the node runs."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import walrus_core

from walrus_node.config import Config, parse_log_level
from walrus_node.words import escaped

_LEVELS = {"trace": logging.DEBUG, "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING}


class _Level:
    """What the process logs. There is one, as `logging` and the Rust side have one each."""

    text = "info"


def level() -> str:
    """What is logged now: a level, or a filter in the syntax of `RUST_LOG`."""
    return _Level.text


def set_up(config: Config) -> None:
    """Python's lines go to standard output, Rust's to standard error, both to the file if one is given."""
    if config.log_file is not None:
        config.log_file.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(config.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
    lines = logging.StreamHandler(sys.stdout)
    lines.setFormatter(_Lines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[lines], level=_python_level(config.log_level))
    walrus_core.init_logging(config.log_level)
    _Level.text = config.log_level


def change_level(text: str) -> None:
    """Let other lines through, until the node is restarted; raises `ValueError` for what is no level or filter."""
    wanted = parse_log_level(text)
    walrus_core.set_log_filter(wanted)
    logging.getLogger().setLevel(_python_level(wanted))
    _Level.text = wanted
    logging.getLogger(__name__).info("log level is %s now", wanted)


class _Lines(logging.Formatter):
    """One line for each message, as Rust's have it; tracebacks are indented: a peer's string could forge lines else."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - overrides logging
        return escaped(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - overrides logging
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - overrides logging
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join("  " + escaped(line) for line in text.split("\n"))


def _python_level(level: str) -> int:
    """That of the first bare level of a filter."""
    bare = next((part for part in level.split(",") if "=" not in part), "info")
    return _LEVELS.get(bare, logging.ERROR)
