"""Brokers whose data are in folders of their nodes: each comes back to its own, though another one is free."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from harness.kube.cluster import Cluster, machine_of
from harness.kube.kubectl import NewNamespace, run
from harness.kube.machines import MACHINES
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench

LABEL = "walrus.dev/disk"
NAMESPACE = "folders"


@pytest.fixture
def labelled() -> Iterator[list[str]]:
    """Three workers with a disk for brokers."""
    workers = [node["metadata"]["name"] for node in MACHINES.list("nodes", "!node-role.kubernetes.io/control-plane")]
    for worker in workers:
        MACHINES("label", "--overwrite", "node", worker, f"{LABEL}=host")
    yield workers
    for worker in workers:
        MACHINES("label", "node", worker, f"{LABEL}-")
        run("docker", "exec", worker, "rm", "-rf", f"/var/lib/walrus/{NAMESPACE}")  # which Kubernetes never does


def example() -> dict[str, Any]:
    """The cluster of the docs, with two brokers: one node is free."""
    documents = yaml.safe_load_all((EXAMPLES / "walruscluster-host-path.yaml").read_text())
    (found,) = (document for document in documents if document["kind"] == "WalrusCluster")
    (pool,) = found["spec"]["pools"]
    spec = found["spec"] | {"pools": [pool | {"replicas": 2}], "replication": {"factor": 2, "writeQuorum": 2}}
    return {**found, "metadata": {"name": "trips"}, "spec": spec}


def test_brokers_come_back_to_their_nodes_though_one_is_free(
    labelled: list[str], new_namespace: NewNamespace, workbench: Workbench
) -> None:
    cluster = Cluster(new_namespace(NAMESPACE, security="privileged"), "trips")
    cluster.kubectl.apply(example())
    cluster.wait_ready()
    homes = homes_of(cluster)
    assert len(set(homes.values())) == 2
    with workbench.producing(cluster.bootstrap, "folders", partitions=2, producers=2) as load:
        load.wait_for_more(1_000)
    old = {pod["metadata"]["uid"] for pod in cluster.pods()}
    cluster.kubectl("annotate", "wc", cluster.name, "walrus.dev/roll=once")
    cluster.wait_for("the roll", lambda _: not old & {pod["metadata"]["uid"] for pod in cluster.pods()}, timeout_s=400)
    cluster.wait_ready()
    assert homes_of(cluster) == homes
    workbench.check(cluster.bootstrap, "folders", load.acked, partitions=2)

    victim = cluster.pods()[-1]
    home = machine_of(victim)
    MACHINES("cordon", home)
    try:
        cluster.kubectl("delete", "pod", victim["metadata"]["name"], "--wait=false")
        cluster.wait_for("a broker that waits for its node", lambda found: home in said_of(found), timeout_s=180)
        assert len(homes_of(cluster)) == 1, "nobody came up elsewhere"
    finally:
        MACHINES("uncordon", home)
    cluster.wait_ready()
    assert homes_of(cluster) == homes
    workbench.check(cluster.bootstrap, "folders", load.acked, partitions=2)


def homes_of(cluster: Cluster) -> dict[str, str]:
    """The node of each broker that has one."""
    return {pod["metadata"]["name"]: machine_of(pod) for pod in cluster.pods() if "nodeName" in pod["spec"]}


def said_of(found: Any) -> str:
    """What the status says of the steps and of the brokers."""
    status = found["status"]
    return f"{status.get('plan')} {[condition['message'] for condition in status.get('conditions', ())]}"
