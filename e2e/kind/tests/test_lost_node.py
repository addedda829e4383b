"""A machine goes for good while records are written: its broker comes up on another one, and nothing is lost."""

from harness.kube.cluster import Cluster, machine_of
from harness.kube.figures import timed
from harness.kube.kubectl import NewNamespace
from harness.kube.machines import lost
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench
from harness.waiting import wait_until

LOST_AFTER_S = 20


def test_the_broker_of_a_lost_node_is_replaced_under_load(
    orders: Cluster, new_namespace: NewNamespace, workbench: Workbench
) -> None:
    cluster = Cluster(new_namespace("lost-node"), "orders")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster.yaml"))
    cluster.kubectl.patch("wc", cluster.name, {"spec": {"lostAfter": f"{LOST_AFTER_S}s"}})
    cluster.wait_ready()
    with workbench.producing(cluster.bootstrap, "lost") as load:
        load.wait_for_more(2_000)
        cluster.wait_replicated()
        victim = cluster.pods()[-1]
        name = victim["metadata"]["name"]
        disk = {row["pod"]: row["uuid"] for row in cluster.resource()["status"]["brokers"]}[name]
        claim = claim_of(cluster, name)
        with lost(machine_of(victim)):
            with timed("node lost to every segment whole on another one, under load", limit_s=LOST_AFTER_S + 90):
                wait_until(f"disk {disk} to be given up", lambda: disk not in disks(cluster), timeout_s=240)
                cluster.wait_ready()
                cluster.wait_replicated()
            load.wait_for_more(2_000)
    workbench.check(cluster.bootstrap, "lost", load.acked)
    assert len(disks(cluster)) == 3
    assert claim_of(cluster, name) != claim
    assert machine_of(cluster.pod(name)) != machine_of(victim)
    told = [event["message"] for event in cluster.kubectl.list("events") if event["reason"] == "DiskGivenUp"]
    assert told == [f"Give up disk {disk} of {name}, whose node is gone"]
    orders.wait_ready()
    assert len(orders.members()) == 3, "lostAfter of the others was not over"


def disks(cluster: Cluster) -> set[str]:
    """The disks of all members."""
    return {member["uuid"] for member in cluster.resource()["status"]["members"]}


def claim_of(cluster: Cluster, pod: str) -> str:
    """The uid of a broker's claim."""
    return str(cluster.kubectl.get("persistentvolumeclaim", f"data-{pod}")["metadata"]["uid"])
