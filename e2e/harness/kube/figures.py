"""What the tests measure: printed at the end of the run, and never a reason to fail."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

figures: dict[str, str] = {}


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Notes how long a block takes."""
    began = time.monotonic()
    yield
    figures[what] = f"{time.monotonic() - began:.1f} s"
