"""Envelopes: the commands that this node proposes. Times and ids are put in here, `apply` has neither."""

from __future__ import annotations

import json
import time
from typing import Any
from uuid import uuid4

ENVELOPE_VERSION = 1


def envelope(command: dict[str, Any]) -> bytes:
    """A command under a fresh id. Proposed again, these very bytes act once."""
    head = {"v": ENVELOPE_VERSION, "id": str(uuid4()), "at_ms": now_ms()}
    return json.dumps({**head, "command": command}, separators=(",", ":")).encode()


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
