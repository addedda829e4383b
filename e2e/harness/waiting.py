"""Waits with a name and an end."""

import threading
import time
from collections.abc import Callable


def wait_until(what: str, condition: Callable[[], bool], *, timeout_s: float = 60.0, every_s: float = 0.02) -> None:
    """Waits for a named condition; raises TimeoutError with its name."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:g} s for {what}")
        threading.Event().wait(every_s)
