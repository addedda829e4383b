"""Harm under load: what was acknowledged is back, once and in order, and writes go on."""

import json

import pytest
from harness.kube.cluster import Cluster, machine_of
from harness.kube.kubectl import Kubectl, Object, run
from harness.kube.workbench import Workbench
from harness.load import wait_until


@pytest.fixture
def leader(orders: Cluster, workbench: Workbench):
    """Finds the pod that leads the open segment of a topic."""

    def leader(topic: str) -> Object:
        said = workbench.walrus("segments", topic, "--bootstrap", orders.bootstrap, "--output", "json")
        host: str = json.loads(said)[0]["segments"][-1]["leader"]["grpc_address"]
        return orders.pod(host.split(".")[0])

    return leader


def test_the_pod_of_the_leader_is_deleted(orders: Cluster, workbench: Workbench, leader) -> None:
    with workbench.producing(orders.bootstrap, "deleted") as load:
        load.wait_for_more(2_000)
        victim = leader("deleted")
        orders.kubectl("delete", "pod", victim["metadata"]["name"], "--wait=false")
        orders.wait_pod_replaced(victim)
        load.wait_for_more(2_000)
    workbench.check(orders.bootstrap, "deleted", load.acked)


def test_the_leading_broker_is_killed_with_sigkill(orders: Cluster, workbench: Workbench, leader) -> None:
    with workbench.producing(orders.bootstrap, "killed") as load:
        load.wait_for_more(2_000)
        victim = leader("killed")
        orders.kill(victim)
        load.wait_for_more(2_000)
    workbench.check(orders.bootstrap, "killed", load.acked)
    again = orders.pod(victim["metadata"]["name"])
    assert again["metadata"]["uid"] == victim["metadata"]["uid"]
    assert again["status"]["containerStatuses"][0]["restartCount"] > restarts(victim)


def test_the_machine_of_the_leader_is_paused(orders: Cluster, workbench: Workbench, leader) -> None:
    with workbench.producing(orders.bootstrap, "paused") as load:
        load.wait_for_more(2_000)
        machine = machine_of(leader("paused"))
        run("docker", "pause", machine)
        try:
            wait_for_machine(machine, "Unknown")
        finally:
            run("docker", "unpause", machine)
        wait_for_machine(machine, "True")
        load.wait_for_more(2_000)
    workbench.check(orders.bootstrap, "paused", load.acked)
    orders.wait_ready()


def test_the_machine_of_the_leader_is_restarted(orders: Cluster, workbench: Workbench, leader) -> None:
    with workbench.producing(orders.bootstrap, "restarted") as load:
        load.wait_for_more(2_000)
        victim = leader("restarted")
        run("docker", "restart", "--time", "0", machine_of(victim))
        load.wait_for_more(2_000)
    workbench.check(orders.bootstrap, "restarted", load.acked)
    orders.wait_ready()
    assert restarts(orders.pod(victim["metadata"]["name"])) > restarts(victim)


def restarts(pod: Object) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


def wait_for_machine(machine: str, ready: str) -> None:
    nodes = Kubectl("default")

    def is_so() -> bool:
        conditions = nodes.get("node", machine)["status"]["conditions"]
        return any(each["type"] == "Ready" and each["status"] == ready for each in conditions)

    wait_until(is_so, f"node {machine} to be Ready={ready}", 180, every_s=0.5)
