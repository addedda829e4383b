"""Where the clients of a workload pause between two steps, so that nothing of theirs is under way."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

LOOK_S = 0.1


class Gate:
    """Open until somebody closes it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.is_open = True
        self._under_way = 0

    @contextmanager
    def entered(self) -> Iterator[None]:
        """A client's whole life: whoever closes the gate waits for it to come to `passed`, or to leave this block."""
        with self._changed:
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def passed(self, over: threading.Event) -> None:
        """A client between two steps waits here while the gate is closed, or until *over* is set."""
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()
            while not self.is_open and not over.is_set():
                self._changed.wait(LOOK_S)
            self._under_way += 1

    @contextmanager
    def closed(self, timeout_s: float) -> Iterator[None]:
        """Nothing is under way in this block. Raises TimeoutError where a client does not come to the gate in time."""
        try:
            with self._changed:
                self.is_open = False
                if not self._changed.wait_for(lambda: self._under_way == 0, timeout_s):
                    raise TimeoutError(f"waited {timeout_s:g} s for {self._under_way} clients to pause")
            yield
        finally:
            with self._changed:
                self.is_open = True
                self._changed.notify_all()
