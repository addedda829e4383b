"""An operator that may not read nodes and volumes replaces no broker by itself, says so, and does it when told."""

from collections.abc import Iterator

import pytest
from harness.kube.cluster import Cluster, machine_of
from harness.kube.installed import Installed
from harness.kube.kubectl import Kubectl, NewNamespace, Object, run
from harness.kube.machines import MACHINES, lost
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench
from harness.waiting import wait_until

NAMESPACE = "roles-only"


@pytest.fixture
def namespace(operator: Installed, new_namespace: NewNamespace) -> Iterator[Kubectl]:
    """A namespace that is watched by an operator whose rights are all in namespaces."""
    kubectl = new_namespace(NAMESPACE)
    operator.install(watched=[NAMESPACE, "orders"], rbac={"create": True, "clusterRole": False})
    yield kubectl
    operator.install()


@pytest.mark.said("forbidden")  # by the operator that goes, whose rights are taken away before it does
def test_a_lost_broker_waits_until_someone_says_that_it_is_to_be_replaced(
    namespace: Kubectl, workbench: Workbench
) -> None:
    cluster = Cluster(namespace, "orders")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster.yaml"))
    cluster.kubectl.patch("wc", cluster.name, {"spec": {"lostAfter": "20s"}})
    cluster.wait_ready()
    with workbench.producing(cluster.bootstrap, "told", partitions=4) as load:
        load.wait_for_more(2_000)
        cluster.wait_replicated()
        victim = cluster.pods()[-1]
        name = victim["metadata"]["name"]
        disk = next(row["uuid"] for row in cluster.resource()["status"]["brokers"] if row["pod"] == name)
        with lost(machine_of(victim)):
            cluster.wait_for("the right that lacks", lambda found: blocked_by(found) == "Forbidden")
            assert disk in disks(cluster)
            run("kubectl", "walrus", "replace", "--namespace", NAMESPACE, "--yes", cluster.name, disk)
            wait_until("the disk to be given up", lambda: disk not in disks(cluster), timeout_s=180)
            cluster.wait_ready()
            cluster.wait_replicated()
            load.wait_for_more(2_000)
    workbench.check(cluster.bootstrap, "told", load.acked, partitions=4)
    assert len(disks(cluster)) == 3
    assert all("nodeName" in pod["spec"] for pod in cluster.pods())
    assert MACHINES.find("node", machine_of(victim)) is not None


def disks(cluster: Cluster) -> set[str]:
    """The disks of all members."""
    return {member["uuid"] for member in cluster.resource()["status"]["members"]}


def blocked_by(found: Object) -> str | None:
    """The gate that holds the cluster up."""
    return found["status"].get("plan", {}).get("blockedBy")  # type: ignore[no-any-return]
