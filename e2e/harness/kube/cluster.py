"""A WalrusCluster as tests see it: its resource, its pods, and the machines they run on."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from harness.kube.kubectl import Kubectl, Object, run
from harness.waiting import wait_until

LABEL = "walrus.dev/cluster"


@dataclass(frozen=True)
class Cluster:
    """The cluster *name* in the namespace of *kubectl*."""

    kubectl: Kubectl
    name: str

    @property
    def bootstrap(self) -> str:
        """The client Service's gRPC port, inside Kubernetes."""
        return f"{self.name}.{self.kubectl.namespace}.svc:9090"

    @property
    def text_address(self) -> str:
        """The client Service's text port, inside Kubernetes."""
        return f"{self.name}.{self.kubectl.namespace}.svc:8080"

    def resource(self) -> Object:
        return self.kubectl.get("walrusclusters", self.name)

    def condition(self, kind: str) -> Object:
        """A condition of the present generation; empty while the operator has not judged that generation."""
        resource = self.resource()
        for condition in resource.get("status", {}).get("conditions", ()):
            if condition["type"] == kind and condition["observedGeneration"] == resource["metadata"]["generation"]:
                found: Object = condition
                return found
        return {}

    def wait_for(self, what: str, test: Callable[[Object], bool], *, timeout_s: float = 240.0) -> None:
        """Waits until the resource, with a status of its present generation, passes *test*."""

        def passes() -> bool:
            resource = self.resource()
            judged = resource.get("status", {}).get("observedGeneration") == resource["metadata"]["generation"]
            return bool(judged) and test(resource)

        wait_until(f"{self.name}: {what}", passes, timeout_s=timeout_s, every_s=0.5)

    def wait_ready(self, *, timeout_s: float = 240.0) -> None:
        """Waits until all brokers of the present spec serve."""
        self.wait_for("Ready", is_ready, timeout_s=timeout_s)

    def wait_replicated(self, *, timeout_s: float = 240.0) -> None:
        """Waits until every segment has all its copies on brokers that are alive."""
        self.wait_for("Replicated", lambda _: self.condition("Replicated").get("status") == "True", timeout_s=timeout_s)

    def set_replicas(self, replicas: int) -> None:
        """Asks for so many brokers of its only pool."""
        (pool,) = self.resource()["spec"]["pools"]
        self.kubectl.patch("wc", self.name, {"spec": {"pools": [pool | {"replicas": replicas}]}})

    def set_requests(self, **requests: str) -> dict[str, str]:
        """Asks for other resources of its brokers, which restarts them; answers all that each of them asks for."""
        (pool,) = self.resource()["spec"]["pools"]
        asked: dict[str, str] = pool.get("resources", {}).get("requests", {}) | requests
        self.kubectl.patch("wc", self.name, {"spec": {"pools": [pool | {"resources": {"requests": asked}}]}})
        return asked

    def members(self) -> list[str]:
        """The names of all members of the cluster, as its status lists them."""
        return [member["name"] for member in self.resource()["status"].get("members", ())]

    def pods(self) -> list[Object]:
        return self.kubectl.list("pods", f"{LABEL}={self.name}")

    def claims(self) -> list[Object]:
        return self.kubectl.list("persistentvolumeclaims", f"{LABEL}={self.name}")

    def pod(self, name: str) -> Object:
        return self.kubectl.get("pod", name)

    def wait_pod_replaced(self, old: Object) -> None:
        """Waits until a pod of the same name, but not the same one, is ready."""
        name, uid = old["metadata"]["name"], old["metadata"]["uid"]

        def replaced() -> bool:
            new = self.kubectl.find("pod", name)
            return new is not None and new["metadata"]["uid"] != uid and is_pod_ready(new)

        wait_until(f"{name} to come back", replaced, timeout_s=180, every_s=0.5)

    def kill(self, pod: Object) -> None:
        """Kills the broker in a pod with SIGKILL."""
        signal(pod, "KILL")


def is_ready(resource: Object) -> bool:
    """Whether the condition Ready holds for the generation that there is."""
    conditions = {condition["type"]: condition for condition in resource.get("status", {}).get("conditions", ())}
    ready = conditions.get("Ready", {})
    return (
        bool(ready) and ready["status"] == "True" and ready["observedGeneration"] == resource["metadata"]["generation"]
    )


def is_pod_ready(pod: Object) -> bool:
    """Whether the pod takes requests."""
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod["status"].get("conditions", ())
    )


def machine_of(pod: Object) -> str:
    """The node of a pod, which in kind is a container of that name."""
    return str(pod["spec"]["nodeName"])


def on_machine(pod: Object, *command: str) -> str:
    """Runs a command as root on the node of a pod."""
    return run("docker", "exec", machine_of(pod), *command)


def signal(pod: Object, name: str) -> None:
    """Sends a signal to the process of a pod from its machine: the first process of a pod is deaf to its own."""
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    inspected: dict[str, Any] = json.loads(on_machine(pod, "crictl", "inspect", container))
    on_machine(pod, "kill", f"-{name}", str(inspected["info"]["pid"]))


@contextmanager
def cut_off(pod: Object) -> Iterator[None]:
    """No packet comes to a pod or from it, but for those of its own machine, which go on asking whether it lives."""
    rules = [("FORWARD", way, pod["status"]["podIP"], "-j", "DROP") for way in ("-s", "-d")]
    for rule in rules:
        on_machine(pod, "iptables", "--wait", "-I", *rule)
    try:
        yield
    finally:
        for rule in rules:
            on_machine(pod, "iptables", "--wait", "-D", *rule)


def put_on_machine(machine: str, path: str, text: str) -> None:
    """Writes a file on a node, in place of the one that was there."""
    run("docker", "exec", "--interactive", machine, "install", "-D", "-m", "644", "/dev/stdin", path, stdin=text)
