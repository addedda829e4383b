"""Where log lines go and how they look: text for people, or JSON, one object a line, for whoever collects them."""

from __future__ import annotations

import logging
import sys

from pythonjsonlogger.json import JsonFormatter

from walrus_operator.settings import Settings

_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_NAMES = {"asctime": "time", "levelname": "level", "name": "logger"}


def set_up(settings: Settings) -> None:
    """Log to standard error from now on."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(formatter(settings.log_format))
    logging.basicConfig(handlers=[lines], level=settings.log_level.upper())
    for chatty in ("kopf", "urllib3"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # It says at each start that signals go to the main thread, which is as it shall be.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)


def formatter(log_format: str) -> logging.Formatter:
    """What makes a line of a record; tracebacks are a field of the object in JSON."""
    return JsonFormatter(_TEXT, rename_fields=_NAMES) if log_format == "json" else logging.Formatter(_TEXT)
