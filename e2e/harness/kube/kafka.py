"""A Java client of Kafka as tests see it, in a pod or on this machine: the driver of `compat/`, told by its arguments.

It says what happens line by line, and ends when its input does.
"""

import json
import subprocess
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from harness.kube.kubectl import Kubectl
from harness.kube.waiting_pod import waiting_pod
from harness.waiting import wait_until

POD = "kafka-client"
_PROGRAM = ("/opt/client/runtime/bin/java", "-XX:-UsePerfData", "-Xmx128m")
_CLASSES = ("-cp", "/opt/client/jars/*:/opt/client/classes", "Driver")


class InPod:
    """The client in a pod on the control plane, where no fault of a worker reaches it."""

    def __init__(self, kubectl: Kubectl, image: str) -> None:
        self._kubectl = kubectl
        kubectl.apply(waiting_pod(POD, image))
        kubectl.wait(f"pod/{POD}", "condition=Ready")

    def command(self) -> tuple[str, ...]:
        """The command that runs it."""
        return self._kubectl.command("exec", "--stdin", POD, "--", *_PROGRAM, *_CLASSES)


class OnMachine:
    """The same client outside of Kubernetes, beside the nodes: in a container of the engine, with its network."""

    def __init__(self, image: str) -> None:
        self._image = image

    def command(self) -> tuple[str, ...]:
        """The command that runs it."""
        return ("docker", "run", "--rm", "--interactive", "--network", "kind", self._image)


class Running:
    """One run of the client; what it tells is in `events`."""

    def __init__(self, command: Sequence[str], what: str, **spec: object) -> None:
        self.events: list[dict[str, Any]] = []
        words = [f"{key}={value}" for key, value in spec.items()]
        self._process = subprocess.Popen(
            [*command, what, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._errors = threading.Thread(target=self._read_errors)
        self._said = ""
        self._errors.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._errors.join()

    def count(self, kind: str) -> int:
        """How many events of a kind there were: `acked`, `failed`, `read`, `error`."""
        return sum(kind in event for event in self.events)

    def wait_for_more(self, kind: str, number: int, *, timeout_s: float = 120.0) -> None:
        """Waits until so many more of them were told."""
        target = self.count(kind) + number
        alive = self._reader.is_alive
        wait_until(f"{target} {kind}", lambda: self.count(kind) >= target or not alive(), timeout_s=timeout_s)
        assert self.count(kind) >= target, f"it ended early: {self.events[-3:]} {self._said[-2000:]}"

    def stop(self) -> None:
        """Tells it to end what it does."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()

    def finish(self, *, timeout_s: float = 120.0) -> list[dict[str, Any]]:
        """Lets it end, and returns all that it told."""
        self.stop()
        self._reader.join(timeout_s)
        assert any("done" in event for event in self.events), f"it did not end well: {self._said[-2000:]}"
        return self.events

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said += line


def producing(command: Sequence[str], bootstrap: str, topic: str, producer: str) -> Running:
    """Idempotent, with the client's defaults, a record each 5 ms, until it is stopped."""
    told = {"acks": -1, "codec": "none", "idempotent": 1, "size": 100, "pace_ms": 5}
    return Running(command, "produce", bootstrap=bootstrap, topic=topic, producer=producer, **told)


def reading(command: Sequence[str], bootstrap: str, topic: str) -> Running:
    """Reads partition 0 from its beginning, until it is stopped."""
    return Running(command, "consume", bootstrap=bootstrap, topic=topic, **{"from": "earliest"})
