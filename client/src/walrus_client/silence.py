"""Answers that do not come in time are given up: gRPC bounds a whole stream only, and a read may take for ever."""

import threading
import time
from collections.abc import Callable


class SilenceWatch:
    """Gives up what was expected and is overdue, in a thread of its own that starts with the first expectation."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._expected: dict[object, tuple[float, Callable[[], None]]] = {}  # times are of the monotonic clock
        self._wakes_at = float("inf")
        self._thread: threading.Thread | None = None
        self._closed = False

    def expect(self, what: object, *, within_s: float, give_up: Callable[[], None]) -> None:
        """From now on *give_up* is called after *within_s*, unless *what* is `heard` before."""
        due = time.monotonic() + within_s
        with self._changed:
            self._expected[what] = (due, give_up)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="walrus-silence", daemon=True)
                self._thread.start()
            elif due < self._wakes_at:
                self._changed.notify()

    def heard(self, what: object) -> bool:
        """Stops waiting for *what*; False if it was given up."""
        with self._changed:
            return self._expected.pop(what, None) is not None

    def close(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                now = time.monotonic()
                overdue = {what: give_up for what, (due, give_up) in self._expected.items() if due <= now}
                for what in overdue:
                    del self._expected[what]
                if not overdue:
                    self._wakes_at = min((due for due, _ in self._expected.values()), default=float("inf"))
                    self._changed.wait(None if self._wakes_at == float("inf") else self._wakes_at - now)
            for give_up in overdue.values():
                give_up()
