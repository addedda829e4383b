"""A driver at work: a process that is told what to do by its arguments, and tells what happens line by line."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from walrus_compat.clients import Client

Event = dict[str, Any]


class DriverError(Exception):
    """A driver did not do what it was told, in the time that it had."""


class Driver:
    """One run of a driver, which ends when its standard input does. What it tells is in `events`."""

    def __init__(self, client: Client, command: str, *, errors: Path, **spec: object) -> None:
        self.name = f"{client.name} {command}"
        self.events: list[Event] = []
        self._changed = threading.Condition()
        self._errors = errors.open("ab")
        self._process = subprocess.Popen(  # noqa: S603 - the arguments are our own
            [*client.command, command, *(f"{key.rstrip('_')}={value}" for key, value in spec.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **client.environment},
            start_new_session=True,  # so that it can be killed with the programs that it runs
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self._reader.join()
        self._errors.close()

    @property
    def pids(self) -> list[int]:
        """Its process, and those that it runs."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        return [pid, *map(int, children.read_text().split())] if children.exists() else [pid]

    def die(self) -> None:
        """Kill the client, and take in what it had told before: of two processes the second is the client."""
        with suppress(ProcessLookupError):
            os.kill(self.pids[-1], signal.SIGKILL)
        self._reader.join()

    def kill(self) -> None:
        """Kill it, as the kernel does with a program that takes too much memory."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self, what: str, is_so: Callable[[list[Event]], bool], timeout_s: float) -> None:
        """Wait until what it told so far is enough."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not is_so(self.events):
                left_s = deadline - time.monotonic()
                is_over = self.is_over and not is_so(self.events)
                if left_s <= 0 or is_over:
                    why = f"it ended, see {self._errors.name}" if is_over else f"not within {timeout_s:g} s"
                    raise DriverError(f"{self.name}: {what}: {why}; the last of what it told: {self.events[-3:]}")
                self._changed.wait(min(left_s, 0.5))

    def wait_ready(self, timeout_s: float = 60) -> None:
        """Wait until a reader has its place."""
        self.wait("ready", lambda events: any("ready" in event for event in events), timeout_s)

    def stop(self) -> None:
        """Tell it to end what it does."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()

    def finish(self, timeout_s: float = 60) -> list[Event]:
        """Let it end, and return all that it told."""
        self.wait("its end", lambda events: any("done" in event for event in events), timeout_s)
        return self.events

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and all that it told is known."""
        return not self._reader.is_alive()

    def _read(self) -> None:
        assert self._process.stdout is not None, "it was asked for"
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                event = {"at": time.time(), "error": f"not a line of a driver: {line!r}"}
            with self._changed:
                self.events.append(event)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


def acked(events: list[Event]) -> dict[int, int]:
    """The offsets of the records that were acknowledged, by number."""
    return {event["acked"]: event["offset"] for event in events if "acked" in event}


def read(events: list[Event]) -> list[Event]:
    """The records that were read."""
    return [event for event in events if "read" in event]


def problems(events: list[Event]) -> list[str]:
    """What the application was told of failures, each text once, in order."""
    return list(dict.fromkeys(event["error"] for event in events if "error" in event))
