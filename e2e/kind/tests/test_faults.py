"""Harm under load: what was acknowledged is back, once and in order, and writes go on."""

import json
import re

import pytest
from harness.kube.cluster import Cluster, is_pod_ready, machine_of
from harness.kube.figures import timed
from harness.kube.kubectl import Kubectl, Object, run
from harness.kube.workbench import Workbench
from harness.waiting import wait_until


@pytest.fixture
def leader(orders: Cluster, workbench: Workbench):
    """Finds the pod that leads the open segment of a topic."""

    def leader(topic: str) -> Object:
        seen: list[str] = []

        def leads() -> bool:
            said = workbench.walrus("segments", topic, "--bootstrap", orders.bootstrap, "--output", "json")
            node = json.loads(said)[0]["segments"][-1]["leader"]
            seen.extend([node["grpc_address"].split(".")[0]] if node else [])
            return bool(seen)

        wait_until(f"a leader of {topic}", leads, timeout_s=120, every_s=0.2)
        return orders.pod(seen[0])

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
    wait_for_restart(orders, victim)


def test_the_machine_of_the_leader_is_paused_and_its_pod_deleted(orders: Cluster, workbench: Workbench, leader) -> None:
    """The broker hangs, and comes back as one that was replaced: nobody may miss it, and it may claim nothing."""
    orders.wait_replicated()
    with workbench.producing(orders.bootstrap, "paused") as load:
        load.wait_for_more(2_000)
        victim = leader("paused")
        machine = machine_of(victim)
        run("docker", "pause", machine)
        try:
            orders.kubectl("delete", "pod", victim["metadata"]["name"], "--wait=false")
            with timed("machine of the leader paused to 2,000 more records"):
                load.wait_for_more(2_000)
            wait_for_machine(machine, "Unknown")
            load.wait_for_more(2_000)
            assert orders.pod(victim["metadata"]["name"])["metadata"]["uid"] == victim["metadata"]["uid"]
            assert orders.condition("Available")["status"] == "True"
        finally:
            run("docker", "unpause", machine)
        wait_for_machine(machine, "True")
        load.wait_for_more(2_000)
    workbench.check(orders.bootstrap, "paused", load.acked)
    orders.wait_pod_replaced(victim)
    orders.wait_ready()
    with timed("machine back to every segment whole"):
        orders.wait_replicated()
    workbench.check(orders.bootstrap, "paused", load.acked)


def test_the_machine_of_the_leader_is_restarted(orders: Cluster, workbench: Workbench, leader) -> None:
    with workbench.producing(orders.bootstrap, "restarted") as load:
        load.wait_for_more(2_000)
        victim = leader("restarted")
        run("docker", "restart", "--time", "0", machine_of(victim))
        load.wait_for_more(2_000)
    workbench.check(orders.bootstrap, "restarted", load.acked)
    wait_for_restart(orders, victim)
    orders.wait_ready()


def wait_for_restart(cluster: Cluster, victim: Object) -> None:
    """Waits until the container of a pod was started again, in the same pod."""
    name, uid = victim["metadata"]["name"], victim["metadata"]["uid"]

    def restarted() -> bool:
        pod = cluster.pod(name)
        assert pod["metadata"]["uid"] == uid, "the pod stays"
        return restarts(pod) > restarts(victim) and is_pod_ready(pod)

    wait_until(f"{name} to start again", restarted, timeout_s=180, every_s=0.5)


def restarts(pod: Object) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


def wait_for_machine(machine: str, ready: str) -> None:
    nodes = Kubectl("default")

    def is_so() -> bool:
        conditions = nodes.get("node", machine)["status"]["conditions"]
        return any(each["type"] == "Ready" and each["status"] == ready for each in conditions)

    wait_until(f"node {machine} to be Ready={ready}", is_so, timeout_s=180, every_s=0.5)


def test_a_lost_disk_is_told_within_ten_seconds_and_the_printed_command_gives_it_up(
    orders: Cluster, workbench: Workbench
) -> None:
    """It was silent: Running, Ready, no Event, and the dead voter in no row."""
    orders.wait_ready()
    orders.wait_replicated()
    victim = orders.pods()[-1]
    name = victim["metadata"]["name"]
    orders.kubectl("delete", "persistentvolumeclaim", f"data-{name}", "--wait=false")
    orders.kubectl("delete", "pod", name, "--wait=false")
    orders.wait_pod_replaced(victim)
    orders.wait_for(
        "a lost disk", lambda _: orders.condition("StorageHealthy").get("reason") == "LostDisk", timeout_s=10
    )
    told = orders.condition("StorageHealthy")["message"]
    assert orders.condition("Ready")["status"] == "False"
    lost = [member for member in orders.resource()["status"]["members"] if member["state"] == "Lost"]
    assert [member["name"] for member in lost] == [name]
    wait_until(
        "an Event with the same words", lambda: ("StorageUnhealthy", told) in said(orders), timeout_s=10, every_s=0.5
    )

    (command,) = re.findall(r"walrus cluster replace \S+ --by \S+", told)
    orders.kubectl.execute(orders.pods()[0]["metadata"]["name"], *command.split())
    orders.wait_ready()
    assert [member["state"] for member in orders.resource()["status"]["members"]] == ["Alive"] * 3
    orders.wait_replicated()


def said(cluster: Cluster) -> list[tuple[str, str]]:
    """Reasons and messages of the Events in the cluster's namespace."""
    return [(event["reason"], event["message"]) for event in cluster.kubectl.list("events")]
