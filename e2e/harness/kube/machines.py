"""The machines of the kind cluster, which tests take away and give back."""

from collections.abc import Iterator
from contextlib import contextmanager

from harness.kube.kubectl import Kubectl, run
from harness.waiting import wait_until

MACHINES = Kubectl("default")


@contextmanager
def restored() -> Iterator[None]:
    """Nodes that are deleted meanwhile start again afterwards and register anew, with their labels."""
    before = {node["metadata"]["name"]: node["metadata"]["labels"] for node in MACHINES.list("nodes")}
    try:
        yield
    finally:
        there = {node["metadata"]["name"] for node in MACHINES.list("nodes")}
        for name in sorted(before.keys() - there):
            _start_again(name, before[name])


@contextmanager
def lost(machine: str) -> Iterator[None]:
    """The machine is silent and its node deleted; afterwards it is given back."""
    with restored():
        run("docker", "pause", machine)
        try:
            MACHINES("delete", "node", machine)
            yield
        finally:
            run("docker", "unpause", machine)


def _start_again(machine: str, labels: dict[str, str]) -> None:
    # The new node has other addresses for its pods: none may start with those of the former, to which no route leads.
    run("docker", "exec", machine, "sh", "-c", "rm -f /etc/cni/net.d/*")
    run("docker", "restart", "--time", "0", machine)
    wait_until(f"node {machine}", lambda: MACHINES.find("node", machine) is not None, timeout_s=180, every_s=0.5)
    MACHINES("label", "--overwrite", "node", machine, *(f"{label}={value}" for label, value in labels.items()))
    MACHINES.wait(f"node/{machine}", "condition=Ready")
