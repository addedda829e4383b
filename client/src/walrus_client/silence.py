"""Answers that do not come in time are given up: gRPC bounds a whole stream only, and a read may take for ever."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

LINGER_S = 10.0
NEVER = float("inf")


@dataclass(slots=True)
class _Expectation:
    due: float  # on the monotonic clock
    give_up: Callable[[], None]


class SilenceWatch:
    """Gives up what was expected and is overdue, in a thread of its own that ends when nothing is expected any more."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._expected: dict[object, _Expectation] = {}
        self._wakes_at = NEVER
        self._thread: threading.Thread | None = None

    def expect(self, what: object, *, within_s: float, give_up: Callable[[], None]) -> None:
        """From now on *give_up* is called after *within_s*, unless *what* is `heard` before. It must not raise."""
        with self._changed:
            self._expected[what] = _Expectation(time.monotonic() + within_s, give_up)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="walrus-silence", daemon=True)
                self._thread.start()
            self._wake_before(self._expected[what].due)

    def hasten(self, what: object, *, within_s: float) -> None:
        """Gives *what* up after *within_s* from now, if it is expected and not due before."""
        with self._changed:
            expectation = self._expected.get(what)
            if expectation is not None:
                expectation.due = min(expectation.due, time.monotonic() + within_s)
                self._wake_before(expectation.due)

    def heard(self, what: object) -> bool:
        """Stops waiting for *what*; False if it was given up."""
        with self._changed:
            return self._expected.pop(what, None) is not None

    def _wake_before(self, due: float) -> None:
        # A reader expects one page after the other, each later than the last: the thread looks once for many of them.
        if due < self._wakes_at:
            self._changed.notify()

    def _run(self) -> None:
        while (overdue := self._next_overdue()) is not None:
            for give_up in overdue:
                give_up()

    def _next_overdue(self) -> list[Callable[[], None]] | None:
        """Waits for what to give up next; None once nothing was expected for a while, which ends the thread."""
        with self._changed:
            while True:
                now = time.monotonic()
                overdue = [what for what, expectation in self._expected.items() if expectation.due <= now]
                if overdue:
                    return [self._expected.pop(what).give_up for what in overdue]
                self._wakes_at = min((expectation.due for expectation in self._expected.values()), default=NEVER)
                woken = self._changed.wait(LINGER_S if self._wakes_at == NEVER else self._wakes_at - now)
                if not woken and not self._expected:
                    self._thread = None
                    return None
