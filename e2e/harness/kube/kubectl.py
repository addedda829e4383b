"""kubectl and helm as tests call them: an error carries what the program said, and every wait has a deadline."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

Object = Mapping[str, Any]  # a Kubernetes object, as its JSON


class CommandError(Exception):
    """A program ended with a failure; `said` is what it wrote about it."""

    def __init__(self, command: tuple[str, ...], said: str) -> None:
        super().__init__(f"{' '.join(command)}: {said}")
        self.said = said


def run(*command: str, stdin: str | None = None, timeout_s: float = 300.0) -> str:
    """Runs a program and returns its standard output; raises CommandError when it fails."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise CommandError(command, (done.stderr or done.stdout).strip())
    return done.stdout


@dataclass(frozen=True)
class Kubectl:
    """kubectl in one namespace."""

    namespace: str

    def __call__(self, *arguments: str, stdin: str | None = None, timeout_s: float = 300.0) -> str:
        return run(*self.command(*arguments), stdin=stdin, timeout_s=timeout_s)

    def command(self, *arguments: str) -> tuple[str, ...]:
        return ("kubectl", "--namespace", self.namespace, *arguments)

    def apply(self, *objects: Object) -> None:
        self("apply", "-f", "-", stdin="\n---\n".join(json.dumps(each) for each in objects))

    def patch(self, kind: str, name: str, change: Object) -> None:
        self("patch", kind, name, "--type=merge", "--patch", json.dumps(change))

    def get(self, kind: str, name: str) -> Object:
        found: Object = json.loads(self("get", kind, name, "--output=json"))
        return found

    def find(self, kind: str, name: str) -> Object | None:
        """The object, or None where there is none."""
        text = self("get", kind, name, "--output=json", "--ignore-not-found")
        return json.loads(text) if text else None

    def list(self, kinds: str, selector: str = "") -> list[Object]:
        """The objects of these kinds (`pods,services`) in the namespace."""
        found: list[Object] = json.loads(self("get", kinds, f"--selector={selector}", "--output=json"))["items"]
        return found

    def wait(self, what: str, condition: str, *, timeout_s: int = 180) -> None:
        """Waits for `condition=Ready`, `delete`, `jsonpath={...}=...` of `kind/name`."""
        self("wait", what, f"--for={condition}", f"--timeout={timeout_s}s", timeout_s=timeout_s + 30)

    def execute(self, pod: str, *command: str, stdin: str | None = None) -> str:
        return self("exec", "--stdin", pod, "--", *command, stdin=stdin)

    @contextmanager
    def forwarded(self, target: str, port: int) -> Iterator[str]:
        """A `host:port` of this machine that leads to a port of `pod/name` or `service/name`, while the block runs."""
        command = self.command("port-forward", target, f":{port}")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            try:
                said = process.stdout.readline()
                match = re.search(r"Forwarding from (127\.0\.0\.1:\d+)", said)
                if match is None:
                    raise CommandError(command, said + process.stdout.read())
                yield match[1]
            finally:
                process.terminate()


def helm(*arguments: str, timeout_s: float = 300.0) -> str:
    """Runs helm; the namespace is an argument like the others."""
    return run("helm", *arguments, timeout_s=timeout_s)


class NewNamespace(Protocol):
    """Makes a namespace and answers kubectl in it."""

    def __call__(self, name: str, *, security: str = "restricted") -> Kubectl: ...
