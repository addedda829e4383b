"""A pod from which tests produce and check records, on the control plane, so that no fault of a worker reaches it."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import harness
from harness.kube.figures import Machine
from harness.kube.kubectl import Kubectl, Object
from harness.kube.waiting_pod import waiting_pod
from harness.waiting import wait_until

NAME = "workbench"
PACKAGE = Path(harness.__file__).parent
SOURCES = sorted(str(source.relative_to(PACKAGE)) for source in PACKAGE.rglob("*.py"))


class Workbench:
    """The pod. Made from the broker's image, with this package mounted."""

    def __init__(self, kubectl: Kubectl, image: str) -> None:
        self._kubectl = kubectl
        kubectl("delete", "pod", NAME, "--ignore-not-found")  # one of a run before has the sources of then
        kubectl.apply(sources(), pod(image))
        kubectl.wait(f"pod/{NAME}", "condition=Ready")

    @contextmanager
    def producing(
        self, bootstrap: str, topic: str, *, producers: int = 4, partitions: int = 1
    ) -> Iterator["RemoteLoad"]:
        """Appends to *topic* while the block runs; when it ends all that was sent is acknowledged, or it raises."""
        program = _program("produce", bootstrap, topic, partitions, producers)
        command = self._kubectl.command("exec", "--stdin", NAME, "--", *program)
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            load = RemoteLoad(process)
            try:
                yield load
            finally:
                load.finish()

    def fill(self, bootstrap: str, topic: str, mebibytes: int, *, partitions: int = 1) -> None:
        """Appends so much to *topic*, spread over its partitions, for stories that need something to copy."""
        self._kubectl.execute(NAME, *_program("fill", bootstrap, topic, partitions, mebibytes))

    def check(self, bootstrap: str, topic: str, acked: dict[int, int], *, partitions: int = 1) -> int:
        """Asserts that every acknowledged record is there once and in order; returns how many records there are."""
        said = self._kubectl.execute(NAME, *_program("check", bootstrap, topic, partitions, json.dumps(acked)))
        answer = json.loads(said)
        assert not answer["findings"], f"{topic}: {answer['findings']}"
        return int(answer["records"])

    def walrus(self, *arguments: str) -> str:
        """The command line `walrus`."""
        return self._kubectl.execute(NAME, "walrus", *arguments)


class RemoteLoad:
    """What the producers of a workbench have done so far.

    Once they have finished, `acked` is theirs, by number, and `pauses_s` how long each of their windows took; `machine`
    tells how slow the machine was meanwhile.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.acked: dict[int, int] = {}
        self.pauses_s: list[float] = []
        self.machine = Machine()
        self._total = 0
        self._process = process
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_for_more(self, records: int, *, timeout_s: float = 150.0) -> None:
        """Waits until so many more records are acknowledged: writes go on."""
        target = self._total + records
        wait_until(
            f"{records} more records", lambda: self._total >= target or not self._reader.is_alive(), timeout_s=timeout_s
        )
        assert self._total >= target, "the producers ended early"

    def finish(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        self._process.stdin.close()
        self._reader.join()
        self.machine.stop()
        if not self.acked:
            raise RuntimeError(f"the producers failed: {self._process.stderr.read()}")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            facts: dict[str, Any] = json.loads(line)
            self._total = facts.get("acked", self._total)
            if "done" in facts:
                self.pauses_s = facts["pauses_s"]
                self.acked = {int(producer): count for producer, count in facts["done"].items()}


def _program(command: str, bootstrap: str, topic: str, partitions: int, argument: object) -> tuple[str, ...]:
    return ("python3", "-m", "harness.kube.remote", command, bootstrap, topic, str(partitions), str(argument))


def sources() -> Object:
    """This package, a file to a key; a key has no slashes."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME},
        "data": {source.replace("/", "."): (PACKAGE / source).read_text() for source in SOURCES},
    }


def pod(image: str) -> Object:
    """A pod that waits for programs to run, with this package where it imports it from."""
    items = [{"key": source.replace("/", "."), "path": f"harness/{source}"} for source in SOURCES]
    container = {
        "env": [{"name": "PYTHONPATH", "value": "/opt/walrus:/opt/tests"}],
        "volumeMounts": [{"name": "sources", "mountPath": "/opt/tests"}],
        # A pod without a share waits behind all others, and would take its own waits for those of the brokers.
        "resources": {"requests": {"cpu": "250m"}},
    }
    volume = {"name": "sources", "configMap": {"name": NAME, "items": items}}
    return waiting_pod(NAME, image, container, [volume])
