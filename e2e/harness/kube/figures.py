"""What the tests measure, held against its limit, and printed as a table at the end of the run.

A limit is for a machine that has two cores to itself. One that is slower, or busy with other work, is given more, at
most twice as much: a fixed piece of work beside each measurement tells how much slower it is. Where records wait for
the disk, small writes of our own beside them tell how long it kept everybody waiting.
"""

import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ROUNDS = 150_000  # A hash is taken so often, in C code that lets other threads run.
_QUIET_S = 0.1  # what they take on a quiet machine that deserves the limits as they stand
_SLOWNESS_MAX = 2.0
_WRITE_PAUSE_S = 0.05
_MANY = 2_000  # Among fewer windows the slowest hundredth are the handovers alone, which the longest one stands for.


@dataclass(frozen=True)
class Figure:
    """What was measured; `slowness` is what the limit was multiplied with."""

    what: str
    value: float
    unit: str
    limit: float | None = None
    slowness: float = 1.0

    def holds(self) -> bool:
        """Whether it is within its limit, if it has one."""
        return self.limit is None or self.value <= self.limit * self.slowness

    def cells(self) -> tuple[str, str, str]:
        """A row of the table."""
        if self.limit is None:
            return self.what, f"{self.value:.3g} {self.unit}", ""
        usual, here = f"{self.limit:.3g}", f"{self.limit * self.slowness:.3g}"
        scaled = "" if here == usual else f", here {here}"
        return self.what, f"{self.value:.3g} {self.unit}", f"{self.limit:g} {self.unit}{scaled}"


figures: list[Figure] = []


def note(what: str, value: float, unit: str, *, limit: float | None = None, slowness: float = 1.0) -> None:
    """Notes a figure; raises AssertionError where it is above its limit."""
    figure = Figure(what, value, unit, limit, slowness)
    figures.append(figure)
    assert figure.holds(), " | ".join(figure.cells())


@contextmanager
def timed(what: str, *, limit_s: float | None = None) -> Iterator[None]:
    """Notes how long a block takes, which must be within *limit_s* if that is given."""
    before = slowness()
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    note(what, took, "s", limit=limit_s, slowness=max(before, slowness()))


def note_pauses(what: str, pauses_s: Sequence[float], machine: "Machine") -> None:
    """Notes how long writers waited for a partition while something was done: all of them, and the longest."""
    ordered = sorted(pauses_s)
    usual = 0.5 if len(ordered) >= _MANY else None
    note(f"the disk's own longest synced write: {what}", machine.stall_s, "s")
    p99 = ordered[len(ordered) * 99 // 100]
    note(f"pause of a partition, p99: {what}", p99, "s", limit=usual, slowness=machine.slowness_for(usual or 1.0))
    note(f"pause of a partition, longest: {what}", ordered[-1], "s", limit=1.0, slowness=machine.slowness_for(1.0))


class Machine:
    """How slow the machine itself is while something is done, from the making of this to `stop`.

    A thread writes a page to the disk of the checkout and syncs it, again and again.
    """

    def __init__(self) -> None:
        self.stall_s = 0.0  # the longest of these writes
        self._slowness = slowness()
        self._stopped = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def stop(self) -> None:
        """Looks for the last time."""
        self._stopped.set()
        self._writer.join()
        self._slowness = max(self._slowness, slowness())

    def slowness_for(self, limit_s: float) -> float:
        """What a limit is multiplied with: the disk's longest stall is added to it; from 1 to 2."""
        return min(self._slowness + self.stall_s / limit_s, _SLOWNESS_MAX)

    def _write(self) -> None:
        with tempfile.TemporaryFile(dir=Path(__file__).parent, buffering=0) as file:
            while not self._stopped.wait(_WRITE_PAUSE_S):
                began = time.monotonic()
                file.seek(0)
                file.write(bytes(4096))
                os.fsync(file.fileno())
                self.stall_s = max(self.stall_s, time.monotonic() - began)


def slowness() -> float:
    """How many times longer than on a quiet machine a fixed work takes that needs all cores; from 1 to 2."""
    began = time.monotonic()
    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(lambda _: hashlib.pbkdf2_hmac("sha256", b"walrus", b"limits", _ROUNDS), range(cores)))
    return min(max((time.monotonic() - began) / _QUIET_S, 1.0), _SLOWNESS_MAX)


def table() -> list[str]:
    """The lines of the table."""
    rows = [("what", "measured", "limit"), *(figure.cells() for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
