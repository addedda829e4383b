"""Time, so that tests can hold it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

Monotonic = Callable[[], float]
Now = Callable[[], datetime]

monotonic: Monotonic = time.monotonic


def now() -> datetime:
    """The time of day, in UTC."""
    return datetime.now(UTC)
